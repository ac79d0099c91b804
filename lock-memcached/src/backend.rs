//! The backend, put together from its parts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Backend, Cancelled, Left, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::client::link::Link;
use crate::config::MemcachedConfig;
use crate::epoch::gate::EpochGate;
use crate::inspect::Inspector;
use crate::items::{pieces::Pieces, reason::ForcedReasons, record::HolderRecords};
use crate::leave::Leaver;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::slots::{rwlock::RwLocks, semaphore::Semaphores};
use crate::store::keys::Keys;
use crate::store::values::{self, LongestLease};
use crate::wait::{WaitQueues, Waits};

/// One client's connections to a server, and its waiters.
pub struct MemcachedBackend {
    pub(crate) acquirer: Arc<Acquirer>,
    pub(crate) waits: Waits,
    pub(crate) rwlocks: RwLocks,
    pub(crate) semaphores: Semaphores,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
    pub(crate) adopter: Arc<Adopter>,
    pub(crate) registry: Arc<Registry>,
    queues: Arc<WaitQueues>,
    renewer: Renewer,
    releaser: Arc<Releaser>,
    leaver: Leaver,
    gate: Arc<EpochGate>,
    longest: LongestLease,
}

impl MemcachedBackend {
    pub(crate) async fn connect(config: &MemcachedConfig) -> Result<Self, Error> {
        let (address, op_timeout) = (config.check()?, config.client.op_timeout);
        Self::over(Link::new(address, config.connections, op_timeout), config).await
    }

    /// Connects over this link.
    pub(crate) async fn over(link: Link, config: &MemcachedConfig) -> Result<Self, Error> {
        let (link, keys, longest) = (Arc::new(link), Arc::new(Keys::new(&config.prefix)), config.bound());
        // One for all steps.
        let until = link.deadline();
        link.resolve(until).await?;
        let gate = EpochGate::connect(config, keys.epoch.clone(), &link, until).await?;
        let (registry, queues) = (Arc::new(Registry::new(&keys, longest)), Arc::<WaitQueues>::default());
        let records = HolderRecords::new(&link, &keys);
        let reasons = ForcedReasons::new(&link, &keys, longest);
        let pieces = Pieces::new(&link, &records);
        let acquirer = Acquirer::new(&link, &gate, &pieces, &registry, &records);
        let releaser = Releaser::new(&link, &gate, &registry, &queues, &pieces, &records, &reasons);
        Ok(Self {
            waits: Waits::new(&queues, &records, config.longest_pause),
            rwlocks: RwLocks::new(&link, &registry, &acquirer, &releaser, &records, &keys, config.readers),
            semaphores: Semaphores::new(&link, &registry, &acquirer, &releaser, longest, config.longest_pause),
            inspector: Inspector::new(&link, &keys, &records, &reasons, config.readers),
            records: Records::new(&link, &keys),
            adopter: Adopter::new(&link, &gate, &registry, &records),
            renewer: Renewer::new(&link, &gate, &registry, &records, &reasons, &keys, longest),
            leaver: Leaver::new(&link, &registry, &records, &reasons, longest),
            acquirer,
            registry,
            queues,
            releaser,
            gate,
            longest,
        })
    }
}

impl fmt::Debug for MemcachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("MemcachedBackend");
        debug.field("registry", &self.registry).field("queues", &self.queues).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemcachedBackend {
    fn name(&self) -> &'static str {
        crate::guarantees::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.gate.guarantees()
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    /// After a restart nobody is granted a lock for so long, so no grant may last longer.
    fn longest_ttl(&self) -> Duration {
        self.longest.get()
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        self.leaver.leave(attempt, left, time).await
    }

    /// After a restart nobody is granted a lock for so long.
    fn longest_leave(&self) -> Duration {
        self.longest.get()
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.registry.get(attempt.id).is_none()
    }

    fn is_answered(&self, attempt: &Attempt) -> bool {
        self.registry.get(attempt.id).is_none_or(|entry| entry.is_answered())
    }

    fn outlasts_lease(&self) -> Duration {
        values::OUTLASTS
    }

    fn forget(&self, attempt: &Attempt) {
        self.registry.forget(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
