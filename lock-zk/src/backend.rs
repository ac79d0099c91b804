//! The backend: the parts of one client, and what lock-core asks of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Left, Notices, Operator, Released, Renewal, Renewed, SeveralOutcome,
};
use lock_core::{Error, GrantId, Guarantees, LockName};

use crate::acquire::Acquirer;
use crate::downgrade::Downgrader;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::permits::Permits;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::session::Sessions;
use crate::several::SeveralAcquirer;
use crate::store::layout;

/// Locks on ZooKeeper, for [`Client`](lock_core::Client).
#[derive(Debug)]
pub struct ZkBackend {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) acquirer: Arc<Acquirer>,
    pub(crate) permits: Permits,
    pub(crate) several: SeveralAcquirer,
    pub(crate) renewer: Arc<Renewer>,
    pub(crate) leaver: Leaver,
    pub(crate) downgrader: Downgrader,
    pub(crate) releaser: Releaser,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
    pub(crate) guarantees: Guarantees,
    pub(crate) op_timeout: Duration,
}

#[async_trait]
impl Backend for ZkBackend {
    fn name(&self) -> &'static str {
        crate::guarantees::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn notices(&self) -> Option<Notices> {
        Some(self.registry.notices())
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

    /// The servers end a node only with its session: this client deletes it when the time is over.
    async fn leave(&self, attempt: &Attempt, _left: GrantId, _time: Duration) -> Result<Left, Error> {
        self.leaver.leave(attempt).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    /// Whether nothing is left of it: a grant of which one node is gone may have others, which live as long as their session.
    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.registry.get(attempt.id).is_none()
    }

    /// A held grant has its nodes: no request for another one is under way.
    fn is_answered(&self, _attempt: &Attempt) -> bool {
        true
    }

    /// A node lives as long as its session, however long nobody could delete it.
    fn may_remain(&self, attempt: &Attempt) -> bool {
        self.registry.may_remain(attempt.id)
    }

    fn forget(&self, attempt: &Attempt) {
        self.registry.forget(attempt.id);
    }

    /// A shared path may be written with or without its first `/`.
    fn canonical(&self, name: LockName) -> LockName {
        layout::canonical(name)
    }

    /// Returns the session's timeout: what a session has goes with it, and not before.
    fn outlasts_lease(&self) -> Duration {
        self.sessions.timeout()
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
