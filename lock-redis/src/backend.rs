//! The backend: the parts of one client, and what lock-core asks of them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{
    Attempt, Backend, Cancelled, Doubts, Left, NoticeSource, Notices, Operator, Released, Renewal, Renewed,
    SeveralOutcome, supervised,
};
use lock_core::{Error, GrantId, Guarantees};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::client::identity::Identity;
use crate::client::links::{Links, UnfinishedLinks};
use crate::client::push::Push;
use crate::config::RedisConfig;
use crate::confirm::Confirmation;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::records::Records;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::several::SeveralAcquirer;
use crate::store::keys::KeySpace;
use crate::store::record::OwnerText;
use crate::wait::Waits;
use crate::wait::foreign::ForeignHolders;
use crate::wait::heartbeat::Heartbeats;
use crate::wait::inbox::inbox;
use crate::wait::queue::WaitQueues;

/// One client's connections to a server, and its waiters.
#[derive(Debug)]
pub struct RedisBackend {
    links: Arc<Links>,
    push: Arc<Push>,
    keys: Arc<KeySpace>,
    queues: Arc<WaitQueues>,
    losses: Arc<NoticeSource>,
    pub(crate) acquirer: Arc<Acquirer>,
    pub(crate) adopter: Adopter,
    several: SeveralAcquirer,
    pub(crate) waits: Waits,
    renewer: Arc<Renewer>,
    pub(crate) releaser: Arc<Releaser>,
    leaver: Leaver,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
}

impl RedisBackend {
    pub(crate) async fn connect(config: &RedisConfig) -> Result<Self, Error> {
        let target = config.check()?;
        let keys = KeySpace::new(config.prefix.clone(), config.dialects.clone());
        let keys = Arc::new(if target.servers.are_a_cluster() { keys.over_slots() } else { keys });
        let identity = Arc::new(Identity::new(keys.channels())?);
        let (queues, losses) = (Arc::<WaitQueues>::default(), Arc::<NoticeSource>::default());
        let unfinished = UnfinishedLinks::new(Links::connect(config, target).await?);
        let told = inbox(queues.clone(), losses.clone());
        unfinished.links().warm_up().await;
        let push = Push::connect(unfinished.links().to_listen(), identity.channel(), told).await?;
        let links = unfinished.finish();
        links.follow(&push);
        let foreign = Arc::new(ForeignHolders::new(links.clone(), queues.clone()));
        let owner = Arc::<OwnerText>::default();
        let renewer = Arc::new(Renewer::new(&links, &keys));
        let releaser = Arc::new(Releaser::new(&links, &keys, &identity, &queues, &owner));
        let confirm = |needed| Confirmation::new(links.replica_acks(needed), &keys, &links, &renewer, &releaser);
        let confirmation = config.replicas.map(confirm).map(Arc::new);
        let acquirer = Arc::new(Acquirer::new(&links, &keys, &identity, &queues, &owner, confirmation.clone()));
        let adopter = Adopter::new(&links, &keys, &identity, &acquirer);
        let several = SeveralAcquirer::new(&links, &keys, &identity, &acquirer, &releaser);
        let waits = Waits::new(&acquirer, &links, &keys, &queues, &foreign);
        let leaver = Leaver::new(&links, &keys);
        let inspector = Inspector::new(&links, &keys, &identity, &queues);
        let records = Records::new(&links, &keys, confirmation);
        let heartbeats = Arc::new(Heartbeats::new(&links, &queues, &push, identity, foreign));
        tokio::spawn(supervised("heartbeats", move || heartbeats.clone().run()));
        Ok(Self {
            links,
            push,
            keys,
            queues,
            losses,
            acquirer,
            adopter,
            several,
            waits,
            renewer,
            releaser,
            leaver,
            inspector,
            records,
        })
    }
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
