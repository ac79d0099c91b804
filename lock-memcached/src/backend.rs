//! The backend, put together from its parts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Backend, Cancelled, Operator, Released, Renewal, Renewed};
use lock_core::{Error, Guarantees};

use crate::acquire::Acquirer;
use crate::client::health;
use crate::client::link::Link;
use crate::config::MemcachedConfig;
use crate::epoch::gate::EpochGate;
use crate::inspect::Inspector;
use crate::kinds::reader_slots::ReaderSlots;
use crate::kinds::rwlock::RwLocks;
use crate::kinds::semaphore::Semaphores;
use crate::kinds::single::SingleKeyLocks;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::store::forced::ForcedReasons;
use crate::store::keys::Keys;
use crate::store::pieces::Pieces;
use crate::store::record::HolderRecords;
use crate::store::refresh::Refresher;
use crate::store::ttl::{self, LongestLease};
use crate::wait::Waits;
use crate::wait::hand_over::HandOver;
use crate::wait::queue::WaitQueues;

/// One client's connections to a server, and its waiters.
pub struct MemcachedBackend {
    pub(crate) single: SingleKeyLocks,
    pub(crate) rwlocks: RwLocks,
    pub(crate) semaphores: Semaphores,
    pub(crate) inspector: Inspector,
    renewer: Renewer,
    releaser: Arc<Releaser>,
    registry: Arc<Registry>,
    queues: Arc<WaitQueues>,
    guarantees: Guarantees,
}

impl MemcachedBackend {
    pub(crate) async fn connect(config: &MemcachedConfig) -> Result<Self, Error> {
        let (address, op_timeout) = (config.check()?, config.client.op_timeout);
        let link = Arc::new(Link::new(address, config.connections, op_timeout).await?);
        let keys = Arc::new(Keys::new(&config.prefix));
        let gate = Arc::new(EpochGate::new(config, keys.epoch.clone()));
        // First of all: its look at the server's clock has to go over a connection that was just opened.
        gate.begin(&link).await?;
        let mut guarantees = crate::guarantees(config.restart_policy);
        if health::check(&link, config).await? {
            guarantees = crate::evicting(guarantees);
        }
        let longest = LongestLease::of(config);
        let registry = Arc::new(Registry::new(&keys, longest));
        let records = HolderRecords::new(&link, &keys);
        let reasons = ForcedReasons::new(&link, &keys, longest);
        let pieces = Arc::new(Pieces::new(&link, &records));
        let acquirer = Acquirer::new(&link, &gate, &pieces, &registry, &records);
        let queues = Arc::<WaitQueues>::default();
        let waits = Waits::new(&queues, &records, config.longest_pause);
        let releaser = Arc::new(Releaser {
            link: link.clone(),
            registry: registry.clone(),
            queues: queues.clone(),
            hand_over: HandOver::new(&link, &gate, &queues, &pieces),
            pieces,
            records: records.clone(),
            reasons: reasons.clone(),
        });
        let (base, ends) = ((&link, &registry, &acquirer), (&waits, &releaser));
        let readers = ReaderSlots::new(&link, &acquirer, &keys, config.readers);
        Ok(Self {
            single: SingleKeyLocks::new(base, &waits),
            rwlocks: RwLocks::new(base, ends, &records, readers),
            semaphores: Semaphores::new(base, ends, longest, config.longest_pause),
            renewer: Renewer {
                link: link.clone(),
                refresher: Refresher::new(&link, &gate),
                registry: registry.clone(),
                records: records.clone(),
                reasons: reasons.clone(),
                keys: keys.clone(),
                longest,
                op_timeout,
            },
            inspector: Inspector { link, keys, records, reasons, readers: config.readers },
            releaser,
            registry,
            queues,
            guarantees,
        })
    }
}

impl fmt::Debug for MemcachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registry, queues) = (&self.registry, &self.queues);
        f.debug_struct("MemcachedBackend").field("registry", registry).field("queues", queues).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemcachedBackend {
    fn name(&self) -> &'static str {
        crate::NAME
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.registry.get(attempt.id).is_none()
    }

    fn outlasts_lease(&self) -> Duration {
        ttl::OUTLASTS
    }

    fn forget(&self, attempt: &Attempt) {
        self.registry.forget(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
