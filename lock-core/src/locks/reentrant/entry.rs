//! One owner at one reentrant lock of one client: how deep it is inside, and who of its tasks asks the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{Notify, futures::Notified};

use super::guard::ReentrantGuard;
use crate::acquire::Core;
use crate::clock::BootInstant;
use crate::error::{Error, Phase};
use crate::lease::Lease;
use crate::name::LockName;
use crate::owner::GrantId;
use crate::sync::locked;

/// The owners that are inside the reentrant locks of a client, or ask for them.
pub(crate) type Entries = HashMap<(LockName, GrantId), Weak<Entry>>;

/// One owner at one lock of one client. Lives as long as a guard or a request of it.
#[derive(Debug)]
pub(crate) struct Entry {
    core: Weak<Core>,
    key: (LockName, GrantId),
    /// Held by the task that asks the server.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// Whether the request that holds the gate may wait for long.
    queued: AtomicBool,
    inside: Mutex<Option<Inside>>,
    entered: Notify,
    silence: Mutex<Option<Silence>>,
}

#[derive(Debug)]
struct Inside {
    lease: Arc<Lease>,
    depth: u32,
}

/// A time in which no request of the owner got an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    pub(super) since: BootInstant,
    pub(super) until: BootInstant,
}

impl Silence {
    /// This one, with the one before it if there was nothing in between.
    pub(super) fn after(self, before: Option<Self>) -> Self {
        let before = before.filter(|before| before.until >= self.since);
        Self { since: before.map_or(self.since, |before| before.since), ..self }
    }
}

impl Entry {
    /// The owner's entry at this lock, shared by all its tasks.
    pub(super) fn of(core: &Arc<Core>, name: &LockName, owner: GrantId) -> Arc<Self> {
        let mut entries = locked(&core.entries);
        let key = (name.clone(), owner);
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        let entry = Arc::new(Self {
            core: Arc::downgrade(core),
            key: key.clone(),
            gate: tokio::sync::Mutex::new(()),
            queued: AtomicBool::new(false),
            inside: Mutex::new(None),
            entered: Notify::new(),
            silence: Mutex::new(None),
        });
        entries.insert(key, Arc::downgrade(&entry));
        entry
    }

    /// One level deeper, if the owner is inside.
    pub(super) fn join(self: &Arc<Self>, max_depth: u32) -> Result<Option<ReentrantGuard>, Error> {
        self.deeper(&mut locked(&self.inside), max_depth)
    }

    /// Inside with this lease or, if the owner got inside by another request meanwhile, one level deeper there.
    pub(super) fn install(self: &Arc<Self>, lease: Lease, max_depth: u32) -> Result<ReentrantGuard, Error> {
        let mut slot = locked(&self.inside);
        if let Some(guard) = self.deeper(&mut slot, max_depth)? {
            // One grant is enough: dropping the second lease gives it back.
            return Ok(guard);
        }
        let lease = Arc::new(lease);
        *slot = Some(Inside { lease: lease.clone(), depth: 1 });
        self.entered.notify_waiters();
        Ok(ReentrantGuard::new(self.clone(), lease))
    }

    fn deeper(self: &Arc<Self>, slot: &mut Option<Inside>, max_depth: u32) -> Result<Option<ReentrantGuard>, Error> {
        let Some(inside) = slot.as_mut().filter(|inside| inside.lease.is_held()) else { return Ok(None) };
        if inside.depth >= max_depth {
            let what = format!("the owner is {} levels deep, no more are allowed", inside.depth);
            return Err(inside.lease.named(Error::invalid(Phase::Acquire, what)));
        }
        inside.depth += 1;
        Ok(Some(ReentrantGuard::new(self.clone(), inside.lease.clone())))
    }

    /// Resolves when the owner gets inside by another request than the caller's.
    pub(super) fn entered(&self) -> Notified<'_> {
        self.entered.notified()
    }

    pub(super) fn depth(&self, lease: &Arc<Lease>) -> u32 {
        match &*locked(&self.inside) {
            Some(inside) if Arc::ptr_eq(&inside.lease, lease) => inside.depth,
            _ => 0,
        }
    }

    /// One level less; the lease itself if this was the last one.
    pub(super) fn leave(&self, mine: Arc<Lease>) -> Option<Lease> {
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

    /// Whether the request that holds the gate may wait for long.
    pub(super) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire)
    }

    /// Marks the request of the gate's holder as one that may wait for long, until the answer is dropped.
    pub(super) fn queued(&self, waits: bool) -> Queued<'_> {
        self.queued.store(waits, Ordering::Release);
        Queued(self)
    }

    /// Forgets the silence before a new request: only its failure proves that it goes on.
    pub(super) fn take_silence(&self) -> Option<Silence> {
        locked(&self.silence).take()
    }

    pub(super) fn was_silent(&self, silence: Silence) {
        *locked(&self.silence) = Some(silence);
    }

    /// The time for which a task that came at `arrived` has been waiting behind requests without any answer.
    pub(super) fn silence_since(&self, arrived: BootInstant) -> Option<Duration> {
        let silence = (*locked(&self.silence)).filter(|silence| silence.until >= arrived)?;
        Some(silence.until.since(silence.since.max(arrived)))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            let mut entries = locked(&core.entries);
            // Another entry may have taken the place since the last reference went.
            if entries.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
                entries.remove(&self.key);
            }
        }
    }
}

/// Tells tries of the same owner that the gate is held by a request that waits in line.
pub(super) struct Queued<'a>(&'a Entry);

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::owner::Owner;
    use crate::sync::locked;

    #[tokio::test]
    async fn an_owner_that_holds_nothing_is_forgotten() {
        let locks = crate::MemoryLocks::new();
        let tree = locks.reentrant("tree");
        for owner in [Owner::new(), Owner::new()] {
            let guard = tree.lock(&owner).await.unwrap();
            assert_eq!(locked(&locks.core().entries).len(), 1);
            guard.release().await.unwrap();
            assert!(locked(&locks.core().entries).is_empty());
        }
    }
}
