//! The backend, put together from its parts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Backend, Cancelled, Kind, Left, Operator, Released, Renewal, Renewed};
use lock_core::{Error, ErrorKind, GrantId, Guarantees, Phase};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::client::batches::Batches;
use crate::client::link::Link;
use crate::config::MemcachedConfig;
use crate::epoch::gate::EpochGate;
use crate::inspect::Inspector;
use crate::items::{pieces::Pieces, reason::ForcedReasons, record::HolderRecords, refresh::Refresher};
use crate::leave::Leaver;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::slots::Slots;
use crate::slots::{reader_slots::ReaderSlots, rwlock::RwLocks, semaphore::Semaphores};
use crate::store::{keys::Keys, values};
use crate::wait::{Waits, pace::Pace, queue::WaitQueues};

/// One client's connections to a server, and its waiters.
pub struct MemcachedBackend {
    pub(crate) acquirer: Arc<Acquirer>,
    pub(crate) waits: Waits,
    pub(crate) rwlocks: RwLocks,
    pub(crate) semaphores: Semaphores,
    pub(crate) inspector: Inspector,
    pub(crate) records: Records,
    pub(crate) adopter: Arc<Adopter>,
    renewer: Renewer,
    releaser: Arc<Releaser>,
    leaver: Leaver,
    gate: Arc<EpochGate>,
    /// On a server that evicts nothing.
    guarantees: Guarantees,
}

impl MemcachedBackend {
    pub(crate) async fn connect(config: &MemcachedConfig) -> Result<Self, Error> {
        let (address, op_timeout) = (config.check()?, config.client.op_timeout);
        Self::over(Link::new(address, config.connections, op_timeout), config).await
    }

    /// Connects over this link.
    pub(crate) async fn over(link: Link, config: &MemcachedConfig) -> Result<Self, Error> {
        let (link, op_timeout) = (Arc::new(link), config.client.op_timeout);
        // One for all steps.
        let until = link.deadline();
        link.resolve(until).await?;
        let (keys, longest) = (Arc::new(Keys::new(&config.prefix)), config.bound());
        let batches = Batches::new(&link);
        let gate = Arc::new(EpochGate::new(config, keys.epoch.clone(), &link, &batches));
        // First of all: its look at the server's clock has to go over a connection that was just opened.
        gate.begin(until).await?;
        gate.check_server(until).await?;
        let (registry, queues) = (Arc::new(Registry::new(&keys, longest)), Arc::<WaitQueues>::default());
        let records = HolderRecords::new(&link, &batches, &keys);
        let reasons = ForcedReasons::new(&link, &keys, longest);
        let pieces = Arc::new(Pieces { link: link.clone(), batches, records: records.clone() });
        let acquirer = Arc::new(Acquirer {
            link: link.clone(),
            gate: gate.clone(),
            pieces: pieces.clone(),
            registry: registry.clone(),
            records: records.clone(),
        });
        let (longest_pause, pace) = (config.longest_pause, Pace::default());
        let waits = Waits { queues: queues.clone(), records: records.clone(), pace, longest_pause };
        let refresher = Refresher { link: link.clone(), gate: gate.clone() };
        let releaser = Arc::new(Releaser {
            link: link.clone(),
            registry: registry.clone(),
            queues: queues.clone(),
            gate: gate.clone(),
            pieces,
            records: records.clone(),
            reasons: reasons.clone(),
        });
        let (slots, many) = (|| Slots { link: link.clone() }, config.readers);
        Ok(Self {
            rwlocks: RwLocks {
                acquirer: acquirer.clone(),
                releaser: releaser.clone(),
                records: records.clone(),
                slots: slots(),
                readers: ReaderSlots { link: link.clone(), acquirer: acquirer.clone(), keys: keys.clone(), many },
            },
            semaphores: Semaphores {
                link: link.clone(),
                acquirer: acquirer.clone(),
                releaser: releaser.clone(),
                slots: slots(),
                longest,
                longest_pause,
            },
            adopter: Arc::new(Adopter {
                link: link.clone(),
                gate: gate.clone(),
                registry: registry.clone(),
                records: records.clone(),
            }),
            leaver: Leaver {
                link: link.clone(),
                registry: registry.clone(),
                records: records.clone(),
                reasons: reasons.clone(),
                longest,
            },
            renewer: Renewer {
                link: link.clone(),
                refresher,
                registry: registry.clone(),
                records: records.clone(),
                reasons: reasons.clone(),
                keys: keys.clone(),
                longest,
                op_timeout,
            },
            records: Records { link: link.clone(), keys: keys.clone() },
            inspector: Inspector { link, keys, records, reasons, readers: many },
            acquirer,
            waits,
            releaser,
            gate,
            guarantees: config.guarantees(),
        })
    }
}

impl fmt::Debug for MemcachedBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (registry, queues) = (&self.releaser.registry, &self.releaser.queues);
        f.debug_struct("MemcachedBackend").field("registry", registry).field("queues", queues).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemcachedBackend {
    fn name(&self) -> &'static str {
        crate::guarantees::NAME
    }

    fn guarantees(&self) -> Guarantees {
        if self.gate.health.evicts() { crate::guarantees::evicting(self.guarantees) } else { self.guarantees }
    }

    async fn renew(&self, batch: &[Renewal<'_>]) -> Vec<Renewed> {
        self.renewer.renew(batch).await
    }

    /// After a restart nobody is granted a lock for so long, so no grant may last longer.
    fn longest_ttl(&self) -> Duration {
        self.leaver.longest.get()
    }

    async fn release(&self, attempt: &Attempt) -> Result<Released, Error> {
        self.releaser.release(attempt).await
    }

    async fn leave(&self, attempt: &Attempt, left: GrantId, time: Duration) -> Result<Left, Error> {
        if attempt.kind != Kind::Mutex {
            let what = "a lock of this kind cannot be left";
            return Err(attempt.error(ErrorKind::Unsupported, Phase::Release, what));
        }
        self.leaver.leave(attempt, left, time).await
    }

    /// After a restart nobody is granted a lock for so long.
    fn longest_leave(&self) -> Duration {
        self.leaver.longest.get()
    }

    async fn cancel(&self, attempt: &Attempt) -> Result<Cancelled, Error> {
        self.releaser.cancel(attempt).await
    }

    fn is_settled(&self, attempt: &Attempt) -> bool {
        self.releaser.registry.get(attempt.id).is_none()
    }

    fn is_answered(&self, attempt: &Attempt) -> bool {
        self.releaser.registry.get(attempt.id).is_none_or(|entry| entry.is_answered())
    }

    fn outlasts_lease(&self) -> Duration {
        values::OUTLASTS
    }

    fn forget(&self, attempt: &Attempt) {
        self.releaser.registry.forget(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
