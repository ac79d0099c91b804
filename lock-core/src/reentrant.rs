//! The reentrant lock: a mutex between owners, with a depth that is counted in the client.
//!
//! One client asks the server once for each owner and name. Its first request holds the entry's gate while it asks;
//! requests of the same owner that come meanwhile wait at the gate and then find the grant. Only the last release goes
//! to the server.

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::backend::{Attempt, Grant, Kind, ReentrantBackend};
use crate::clock::Deadline;
use crate::core::{Core, Wait, Wish};
use crate::error::{Error, ErrorKind, Phase};
use crate::inspect::Inspection;
use crate::lease::Lease;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::{GrantId, Owner};
use crate::sync::locked;
use crate::token::FencingToken;

/// Who is inside which reentrant lock of a client.
pub(crate) type Entries = HashMap<(LockName, GrantId), Weak<Entry>>;

/// A handle for one reentrant lock.
///
/// Exclusion is between [`Owner`]s, which the caller passes explicitly, never between threads or tasks: two tasks that
/// use one owner are inside together, by design. Two handles on one name in one client share the depth. Whether one
/// owner may also enter from a second process is [`Guarantee::SharedOwner`](crate::Guarantee::SharedOwner); elsewhere
/// it waits there like another owner.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::Owner;
///
/// let (me, you) = (Owner::new(), Owner::new());
/// let tree = locks.reentrant("tree");
/// let outer = tree.lock(&me).await?;
/// let inner = tree.lock(&me).await?; // at once
/// assert_eq!(inner.depth(), 2);
/// assert!(tree.try_lock(&you).await?.is_none());
/// inner.release().await?;
/// outer.release().await // only now is it free
/// # }
/// ```
///
/// # When the lock is lost
/// Every guard of the owner reports it; see [`Lease`].
#[derive(Clone)]
pub struct ReentrantMutex {
    core: Arc<Core>,
    backend: Arc<dyn ReentrantBackend>,
    name: LockName,
    lease: LeaseOptions,
    max_depth: u32,
}

impl ReentrantMutex {
    pub(crate) fn new(core: Arc<Core>, backend: Arc<dyn ReentrantBackend>, name: LockName) -> Self {
        let lease = core.options.lease;
        Self { core, backend, name, lease, max_depth: u32::MAX }
    }

    /// The same lock with other lease options, for grants taken through this handle.
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// The same lock with another TTL. A nested lock never shortens the lease of the outer one.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// The same lock, entered at most this many times by one owner.
    #[must_use]
    pub fn with_max_depth(mut self, max_depth: u32) -> Self {
        self.max_depth = max_depth;
        self
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits for the lock; at once if the owner is inside already.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`ErrorKind::InvalidArgument`] beyond
    /// [`with_max_depth`](ReentrantMutex::with_max_depth).
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn lock(&self, owner: &Owner) -> Result<ReentrantGuard, Error> {
        self.enter(owner, Wait::Until(Deadline::NEVER)).await?.ok_or_else(|| {
            let what = "the backend ended a wait that has no deadline";
            self.core.named(Error::new(ErrorKind::Protocol, Phase::Wait, what), &self.name)
        })
    }

    /// Takes the lock if no other owner holds it.
    ///
    /// While another task of the same owner is waiting in line, this says `None` too.
    ///
    /// # Errors
    /// As [`lock`](ReentrantMutex::lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_lock(&self, owner: &Owner) -> Result<Option<ReentrantGuard>, Error> {
        self.enter(owner, Wait::Try).await
    }

    /// Waits for the lock for at most this long.
    ///
    /// # Errors
    /// As [`lock`](ReentrantMutex::lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_lock_for(&self, owner: &Owner, wait: Duration) -> Result<Option<ReentrantGuard>, Error> {
        self.enter(owner, self.core.deadline(wait)).await
    }

    /// As [`Mutex::inspect`](crate::Mutex::inspect).
    ///
    /// # Errors
    /// As [`Mutex::inspect`](crate::Mutex::inspect).
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.core.inspect(&self.name, Kind::Reentrant).await
    }

    /// As [`Mutex::force_release`](crate::Mutex::force_release).
    ///
    /// # Errors
    /// As [`Mutex::force_release`](crate::Mutex::force_release).
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, Error> {
        self.core.force_release(&self.name, Kind::Reentrant, grant, reason).await
    }

    async fn enter(&self, owner: &Owner, wait: Wait) -> Result<Option<ReentrantGuard>, Error> {
        let entry = self.entry(owner);
        if let Some(guard) = self.join(&entry)? {
            self.keep_at_least(&guard).await;
            return Ok(Some(guard));
        }
        let Some(_gate) = self.pass_gate(&entry, wait).await else { return Ok(None) };
        if let Some(guard) = self.join(&entry)? {
            self.keep_at_least(&guard).await;
            return Ok(Some(guard));
        }
        let _queued = Queued::new(&entry, matches!(wait, Wait::Until(_)));
        let wish = Wish { name: &self.name, kind: Kind::Reentrant, owner, lease: &self.lease };
        let Some(lease) = self.core.acquire(wish, wait, |attempt, wait| self.ask(attempt, wait)).await? else {
            return Ok(None);
        };
        let inside = Inside { lease: Arc::new(lease), depth: 1 };
        let guard = ReentrantGuard { entry: entry.clone(), lease: Some(inside.lease.clone()) };
        *locked(&entry.inside) = Some(inside);
        Ok(Some(guard))
    }

    /// One level deeper, if the owner is inside.
    fn join(&self, entry: &Arc<Entry>) -> Result<Option<ReentrantGuard>, Error> {
        let mut slot = locked(&entry.inside);
        let Some(inside) = slot.as_mut().filter(|inside| inside.lease.is_held()) else { return Ok(None) };
        if inside.depth >= self.max_depth {
            let what = format!("the owner is {} levels deep, no more are allowed", inside.depth);
            return Err(self.core.named(Error::invalid(Phase::Acquire, what), &self.name));
        }
        inside.depth += 1;
        Ok(Some(ReentrantGuard { entry: entry.clone(), lease: Some(inside.lease.clone()) }))
    }

    /// A nested lock with a longer TTL lengthens the lease; with a shorter one it changes nothing.
    async fn keep_at_least(&self, guard: &ReentrantGuard) {
        if guard.remaining() < self.lease.ttl / 2 && self.lease.ttl > guard.cell.attempt.ttl {
            // Best effort: without the extension the outer lease goes on being renewed as before.
            if let Err(error) = guard.extend(self.lease.ttl).await {
                tracing::debug!(%error, "a nested lock could not lengthen the lease");
            }
        }
    }

    async fn pass_gate<'a>(&self, entry: &'a Entry, wait: Wait) -> Option<tokio::sync::MutexGuard<'a, ()>> {
        let clock = &self.core.keeper.clock;
        let until = match wait {
            Wait::Try if entry.queued.load(Ordering::Acquire) => return entry.gate.try_lock().ok(),
            Wait::Try => clock.now().plus(self.core.options.op_timeout),
            Wait::Until(deadline) => deadline.instant(),
        };
        tokio::select! {
            biased;
            gate = entry.gate.lock() => Some(gate),
            () = clock.sleep_until(until) => None,
        }
    }

    fn entry(&self, owner: &Owner) -> Arc<Entry> {
        let mut entries = locked(&self.core.entries);
        let key = (self.name.clone(), owner.id());
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        let entry = Arc::new(Entry {
            core: Arc::downgrade(&self.core),
            key: key.clone(),
            gate: tokio::sync::Mutex::new(()),
            queued: AtomicBool::new(false),
            inside: Mutex::new(None),
        });
        entries.insert(key, Arc::downgrade(&entry));
        entry
    }

    async fn ask(&self, attempt: Arc<Attempt>, wait: Wait) -> Result<Option<Grant>, Error> {
        match wait {
            Wait::Try => self.backend.try_enter(&attempt).await,
            Wait::Until(deadline) => self.backend.enter(&attempt, deadline).await,
        }
    }
}

impl fmt::Debug for ReentrantMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantMutex").field("name", &self.name).field("backend", &self.backend.name()).finish()
    }
}

/// One owner at one lock of one client. Lives as long as a guard or a request of it.
#[derive(Debug)]
pub(crate) struct Entry {
    core: Weak<Core>,
    key: (LockName, GrantId),
    gate: tokio::sync::Mutex<()>,
    /// Whether the request that holds the gate may wait for long.
    queued: AtomicBool,
    inside: Mutex<Option<Inside>>,
}

#[derive(Debug)]
struct Inside {
    lease: Arc<Lease>,
    depth: u32,
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
struct Queued<'a>(&'a Entry);

impl<'a> Queued<'a> {
    fn new(entry: &'a Entry, waits: bool) -> Self {
        entry.queued.store(waits, Ordering::Release);
        Self(entry)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.store(false, Ordering::Release);
    }
}

/// One level of a [`ReentrantMutex`]. Everything a holder can ask is on [`Lease`], to which it dereferences; all levels
/// share one lease.
#[must_use = "the level is left as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ReentrantGuard {
    entry: Arc<Entry>,
    /// `None` only once the level has been left.
    lease: Option<Arc<Lease>>,
}

impl ReentrantGuard {
    /// The token to present to the resource, where the configuration has them; the same on every level.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.cell.token
    }

    /// How deep the owner is inside, through this client.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match &*locked(&self.entry.inside) {
            Some(inside) if Arc::ptr_eq(&inside.lease, self.shared()) => inside.depth,
            _ => 0,
        }
    }

    /// Leaves one level; the outermost release gives the lock back, as
    /// [`MutexGuard::release`](crate::MutexGuard::release).
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] on every level if the lock was lost; for the outermost level as
    /// [`MutexGuard::release`](crate::MutexGuard::release).
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        let held = self.check(Phase::Release).map_err(|cause| {
            let what = "the lock was lost before this level was left";
            self.named(Error::new(ErrorKind::NotHeld, Phase::Release, what).with_source(cause))
        });
        match self.leave() {
            Some(lease) => lease.release().await,
            None => held,
        }
    }

    /// One level less; the lease itself if this was the last one.
    fn leave(&mut self) -> Option<Lease> {
        let mut slot = locked(&self.entry.inside);
        let mine = self.lease.take()?;
        let inside = slot.as_mut().filter(|inside| Arc::ptr_eq(&inside.lease, &mine))?;
        // Every level drops its share while the slot is locked, so that the last one finds itself alone.
        drop(mine);
        inside.depth -= 1;
        if inside.depth > 0 {
            return None;
        }
        slot.take().and_then(|inside| Arc::into_inner(inside.lease))
    }

    fn shared(&self) -> &Arc<Lease> {
        // Taken only by `leave`, which `release` and `drop` call last.
        self.lease.as_ref().expect("a guard has its lease until the level is left")
    }
}

impl Deref for ReentrantGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.shared()
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
