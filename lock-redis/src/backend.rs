//! The backend: the parts of one client, and what lock-core asks of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Doubts, Left, NoticeSource, Notices, Operator, Released, Renewal, Renewed,
    SeveralOutcome,
};
use lock_core::{Error, GrantId, Guarantees};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::client::links::Links;
use crate::client::push::Push;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::records::Records;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::several::SeveralAcquirer;
use crate::store::keys::KeySpace;
use crate::wait::Waits;
use crate::wait::queue::WaitQueues;

/// One client's connections to a server, and its waiters.
#[derive(Debug)]
pub struct RedisBackend {
    pub(crate) links: Arc<Links>,
    pub(crate) push: Arc<Push>,
    pub(crate) keys: Arc<KeySpace>,
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) losses: Arc<NoticeSource>,
    pub(crate) acquirer: Arc<Acquirer>,
    pub(crate) adopter: Adopter,
    pub(crate) several: SeveralAcquirer,
    pub(crate) waits: Waits,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) leaver: Leaver,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
}

impl Drop for RedisBackend {
    fn drop(&mut self) {
        self.links.close();
        self.push.close();
        self.queues.wake.notify_one();
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn name(&self) -> &'static str {
        crate::guarantees::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.links.topology().guarantees()
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.losses.subscribe())
    }

    fn doubts(&self) -> Option<Doubts> {
        Some(self.links.doubts())
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    async fn try_several(&self, attempts: &[&Attempt]) -> Result<SeveralOutcome, Error> {
        self.several.try_several(attempts).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.leaver.leave(attempt, left, time).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt, self.links.until()).await
    }

    fn place(&self, attempt: &Attempt) -> u64 {
        self.links.place(|| self.keys.of(&attempt.name, attempt.kind).lock)
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.releaser.is_settled(attempt)
    }

    fn is_adoptable(&self, attempt: &Attempt) -> bool {
        self.adopter.is_adoptable(attempt)
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
