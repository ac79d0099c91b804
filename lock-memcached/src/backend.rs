//! The backend: its parts, each of which answers one of the core's questions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::driver::{Attempt, Backend, Cancelled, Left, Operator, Released, Renewal, Renewed};
use lock_core::{Error, GrantId, Guarantees};

use crate::acquire::Acquirer;
use crate::adopt::Adopter;
use crate::config::LongestLease;
use crate::epoch::gate::EpochGate;
use crate::inspect::Inspector;
use crate::leave::Leaver;
use crate::records::Records;
use crate::registry::Registry;
use crate::release::Releaser;
use crate::renew::Renewer;
use crate::slots::{rwlock::RwLocks, semaphore::Semaphores};
use crate::store::keys::OUTLASTS;
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
    pub(crate) queues: Arc<WaitQueues>,
    pub(crate) renewer: Renewer,
    pub(crate) releaser: Arc<Releaser>,
    pub(crate) leaver: Leaver,
    pub(crate) gate: Arc<EpochGate>,
    pub(crate) longest: LongestLease,
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
        OUTLASTS
    }

    fn forget(&self, attempt: &Attempt) {
        self.registry.forget(attempt.id);
    }

    fn operator(&self) -> Option<&dyn Operator> {
        Some(&self.inspector)
    }
}
