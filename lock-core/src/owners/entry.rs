//! One owner at one reentrant lock of one client: how deep it is inside, and who of its tasks asks the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, futures::Notified};

use super::gate::Gate;
use crate::clock::BootInstant;
use crate::error::{Error, Phase};
use crate::lease::Lease;
use crate::sync::locked;

/// One owner at one lock of one client. Lives as long as a guard or a request of it.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// Held by the task that asks the server.
    pub(crate) gate: Gate,
    /// The number of requests that may wait for long: of the task that has the gate, and of those that found it abandoned.
    queued: AtomicUsize,
    /// Told when such a request begins.
    began_to_wait: Notify,
    inside: Mutex<Option<Inside>>,
    entered: Notify,
    /// Told when the owner gets inside by a request that has not passed the gate.
    passed_by: Notify,
    silence: Mutex<Option<Silence>>,
}

#[derive(Debug)]
struct Inside {
    lease: Arc<Lease>,
    depth: u32,
}

/// A time in which no request of the owner got an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence {
    pub(crate) since: BootInstant,
    pub(crate) until: BootInstant,
}

impl Silence {
    /// Joins a silence to the one before it, if there was nothing in between.
    pub(crate) fn after(self, before: Option<Self>) -> Self {
        let before = before.filter(|before| before.until >= self.since);
        Self { since: before.map_or(self.since, |before| before.since), ..self }
    }
}

impl Entry {
    /// Enters one level deeper, if the owner is inside; returns the lease, of which the caller leaves its level through [`leave`](Entry::leave).
    pub(crate) fn join(&self, max_depth: u32) -> Result<Option<Arc<Lease>>, Error> {
        self.deeper(&mut locked(&self.inside), max_depth)
    }

    /// Inside with this lease or, if the owner got inside by another request meanwhile, one level deeper there.
    pub(crate) fn install(&self, lease: Lease, max_depth: u32) -> Result<Arc<Lease>, Error> {
        let mut slot = locked(&self.inside);
        if let Some(known) = self.deeper(&mut slot, max_depth)? {
            // One grant is enough: dropping the second lease releases it.
            return Ok(known);
        }
        let lease = Arc::new(lease);
        *slot = Some(Inside { lease: lease.clone(), depth: 1 });
        self.entered.notify_waiters();
        Ok(lease)
    }

    fn deeper(&self, slot: &mut Option<Inside>, max_depth: u32) -> Result<Option<Arc<Lease>>, Error> {
        let Some(inside) = slot.as_mut().filter(|inside| inside.lease.is_held()) else { return Ok(None) };
        if inside.depth >= max_depth {
            let what = format!("the owner is {} levels deep, no more are allowed", inside.depth);
            return Err(inside.lease.named(Error::invalid(Phase::Acquire, what)));
        }
        inside.depth += 1;
        Ok(Some(inside.lease.clone()))
    }

    /// Resolves when the owner gets inside by another request than the caller's.
    pub(crate) fn entered(&self) -> Notified<'_> {
        self.entered.notified()
    }

    /// Resolves when the owner gets inside, after this call, by a request that has not passed the gate.
    pub(crate) fn passed_by(&self) -> Notified<'_> {
        self.passed_by.notified()
    }

    /// Tells those at the gate that the owner is inside, which they would not hear from the task that has the gate.
    pub(crate) fn passes_by(&self) {
        self.passed_by.notify_waiters();
    }

    pub(crate) fn depth(&self, lease: &Arc<Lease>) -> u32 {
        match &*locked(&self.inside) {
            Some(inside) if Arc::ptr_eq(&inside.lease, lease) => inside.depth,
            _ => 0,
        }
    }

    /// Exits one level; returns the lease itself if this was the last one.
    pub(crate) fn leave(&self, mine: Arc<Lease>) -> Option<Lease> {
        let mut slot = locked(&self.inside);
        let inside = slot.as_mut().filter(|inside| Arc::ptr_eq(&inside.lease, &mine))?;
        // Every level drops its share while the slot is locked, so that the last one finds itself alone.
        drop(mine);
        inside.depth -= 1;
        if inside.depth > 0 {
            return None;
        }
        slot.take().and_then(|inside| Arc::into_inner(inside.lease))
    }

    /// Whether a request of the owner may wait for long.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire) > 0
    }

    /// Resolves when a request that may wait for long begins after this call.
    pub(crate) fn began_to_wait(&self) -> Notified<'_> {
        self.began_to_wait.notified()
    }

    /// Counts a request that may wait for long, until the answer is dropped.
    pub(crate) fn queued(&self) -> Queued<'_> {
        self.queued.fetch_add(1, Ordering::AcqRel);
        self.began_to_wait.notify_waiters();
        Queued(self)
    }

    /// Forgets the silence before a new request: only its failure proves that it goes on.
    pub(crate) fn take_silence(&self) -> Option<Silence> {
        locked(&self.silence).take()
    }

    pub(crate) fn was_silent(&self, silence: Silence) {
        *locked(&self.silence) = Some(silence);
    }

    /// The time for which a task that came at `arrived` has been waiting behind requests without any answer.
    pub(crate) fn silence_since(&self, arrived: BootInstant) -> Option<Duration> {
        let silence = (*locked(&self.silence)).filter(|silence| silence.until >= arrived)?;
        Some(silence.until.since(silence.since.max(arrived)))
    }
}

/// Tells tries of the same owner that one of its requests waits in the queue.
pub(crate) struct Queued<'a>(&'a Entry);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::AcqRel);
    }
}
