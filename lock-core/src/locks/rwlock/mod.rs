//! The read-write lock.

mod guards;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::acquire::{AcquireRequest, Core, Wait};
use crate::driver::Inspection;
use crate::driver::{Attempt, Grant, Kind, RwLockBackend};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::{Lease, WorkError, scoped};
use crate::locks::Fenced;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::{GrantId, Owner};
use crate::owners::{Owned, UsedGrant};

use guards::Held;
pub use guards::{DowngradeError, ReadGuard, WriteGuard};

/// A handle for one read-write lock: many readers or one writer.
///
/// # Fairness
/// By arrival, where the backend has a queue: a reader behind a waiting writer waits, readers in front are admitted
/// together. Every reader has its own lease, so a dead one delays a writer by at most its TTL.
///
/// # Upgrade
/// There is none: a task that asks for the write lock while it keeps a read guard waits for itself. A handle that knows its
/// [`Owner`](RwLock::with_owner) refuses a second request of that owner in this client with
/// [`ErrorKind::Unsupported`], instead of waiting for itself. A writer becomes a reader by
/// [`downgrade`](WriteGuard::downgrade).
///
/// # When the lock is lost
/// See [`Lease`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let config = locks.rwlock("config");
/// let read = config.read().await?;
/// assert!(config.try_read().await?.is_some()); // readers share it
/// assert!(config.try_write().await?.is_none()); // a writer does not
/// read.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RwLock {
    core: Arc<Core>,
    backend: Arc<dyn RwLockBackend>,
    name: LockName,
    lease: LeaseOptions,
    owner: Option<Owner>,
}

impl RwLock {
    pub(crate) fn new(core: Arc<Core>, backend: Arc<dyn RwLockBackend>, name: LockName) -> Self {
        let lease = core.options.lease;
        Self { core, backend, name, lease, owner: None }
    }

    /// Sets the lease options of the guards that are taken through this handle.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_core::LeaseOptions;
    ///
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).with_max_hold(Duration::from_secs(3600));
    /// let guard = locks.rwlock("config").with_lease(lease).write().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the TTL of the guards that are taken through this handle.
    ///
    /// The client's [`renew_every`](LeaseOptions::renew_every), if it has one, stays: one of more than half of the new TTL is refused when
    /// the lock is taken. [`with_lease`](RwLock::with_lease) sets both.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let ttl = std::time::Duration::from_secs(60);
    /// let guard = locks.rwlock("config").with_ttl(ttl).write().await?;
    /// assert!(guard.remaining() > ttl / 2);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// Asks for the lock in this owner's name: a request while the owner already has a guard of this lock in
    /// this client is refused rather than left to wait for itself.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config").with_owner(lock_core::Owner::new());
    /// let read = config.read().await?;
    /// let refused = config.write().await.unwrap_err(); // it would wait for itself
    /// assert_eq!(refused.kind(), lock_core::ErrorKind::Unsupported);
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_owner(mut self, owner: Owner) -> Self {
        self.owner = Some(owner);
        self
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Turns the handle into one whose guards carry a fencing token by their type.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.rwlock("config").fenced()?.write().await?;
    /// assert!(guard.fencing_token().as_u64() > 0); // not an `Option`
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the configuration has no fencing tokens. Whether they keep growing when a server
    /// restarts or another one takes over is another question: [`Guarantee::FencingAcrossRestart`](crate::Guarantee::FencingAcrossRestart),
    /// [`Guarantee::FencingAcrossFailover`](crate::Guarantee::FencingAcrossFailover).
    pub fn fenced(self) -> Result<Fenced<Self>, Error> {
        self.core.require_fencing(&self.name)?;
        Ok(Fenced::new(self))
    }

    /// Waits for a shared grant, which other readers may have at the same time.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let (one, two) = (config.read().await?, config.read().await?);
    /// one.release().await?;
    /// two.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer for the client's patience;
    /// [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner) already has a guard of this lock; the
    /// others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    #[doc(alias = "read_owned")]
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        let used = self.used()?;
        let lease = self.core.acquire_unbounded(self.request(Kind::Read), |a, wait| self.ask(a, wait)).await?;
        Ok(ReadGuard(Held::new(lease, used)))
    }

    /// Takes a shared grant if it can be had now; `Ok(None)` if not.
    ///
    /// If this client is itself still releasing the lock in the background (after a dropped guard, say), a refused try waits until that release
    /// was tried and asks once more, unless half of the operation timeout is over by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let write = config.write().await?;
    /// assert!(config.try_read().await?.is_none());
    /// write.release().await?;
    /// assert!(config.try_read().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer within one operation
    /// timeout; [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner) already has a guard of this
    /// lock; the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    #[doc(alias = "try_read_owned")]
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        Ok(self.acquire(Kind::Read, Wait::Try).await?.map(ReadGuard))
    }

    /// Waits for a shared grant for at most this long; `Ok(None)` if it cannot be had by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let write = config.write().await?;
    /// assert!(config.try_read_for(std::time::Duration::from_millis(10)).await?.is_none());
    /// write.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer, at the latest one
    /// operation timeout after the deadline; [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner)
    /// already has a guard of this lock; the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    pub async fn try_read_for(&self, wait: Duration) -> Result<Option<ReadGuard>, Error> {
        Ok(self.acquire(Kind::Read, self.core.deadline(wait)).await?.map(ReadGuard))
    }

    /// Waits for the exclusive grant.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let write = config.write().await?;
    /// assert!(config.try_read().await?.is_none());
    /// write.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer for the client's patience;
    /// [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner) already has a guard of this lock; the
    /// others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    #[doc(alias = "write_owned")]
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        let used = self.used()?;
        let lease = self.core.acquire_unbounded(self.request(Kind::Write), |a, wait| self.ask(a, wait)).await?;
        Ok(self.write_guard(lease, used))
    }

    /// Takes the exclusive grant if it can be had now; `Ok(None)` if not.
    ///
    /// If this client is itself still releasing the lock in the background (after a dropped guard, say), a refused try waits until that release
    /// was tried and asks once more, unless half of the operation timeout is over by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let read = config.read().await?;
    /// assert!(config.try_write().await?.is_none()); // a reader has it
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer within one operation
    /// timeout; [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner) already has a guard of this
    /// lock; the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    #[doc(alias = "try_write_owned")]
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        self.acquire_write(Wait::Try).await
    }

    /// Waits for the exclusive grant for at most this long; `Ok(None)` if it cannot be had by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let config = locks.rwlock("config");
    /// let read = config.read().await?;
    /// assert!(config.try_write_for(Duration::from_millis(10)).await?.is_none());
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer, at the latest one
    /// operation timeout after the deadline; [`ErrorKind::Unsupported`] if the handle's [owner](RwLock::with_owner)
    /// already has a guard of this lock; the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    pub async fn try_write_for(&self, wait: Duration) -> Result<Option<WriteGuard>, Error> {
        self.acquire_write(self.core.deadline(wait)).await
    }

    /// Waits for a shared grant, runs `body` while it is held, and releases it.
    ///
    /// `Ok` means that the lock was held when `body` ended, and that it is released. `body` is dropped at its next await point when the lock is
    /// lost; tasks and threads that it has started are not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let seen = locks.rwlock("config").run_read(async |_guard| "as it is").await?;
    /// assert_eq!(seen, "as it is");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`read`](RwLock::read): then `body` was not called. [`ErrorKind::Lost`] if the lock was lost, and what
    /// releasing it may tell: then the value is in the error, if `body` had ended.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the lock is released in the background. One that is kept without being polled (in a `select!` loop,
    /// say) keeps the lock for as long as it is kept.
    pub async fn run_read<T>(&self, body: impl AsyncFnOnce(&ReadGuard) -> T) -> Result<T, WorkError<T>> {
        scoped(self.read().await, body, ReadGuard::release).await
    }

    /// Waits for the exclusive grant, runs `body` while it is held, and releases it.
    ///
    /// `Ok` means that the lock was held when `body` ended, and that it is released. `body` is dropped at its next await point when the lock is
    /// lost; tasks and threads that it has started are not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let written = config.run_write(async |guard| guard.is_held()).await?;
    /// assert!(written && config.try_read().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`write`](RwLock::write): then `body` was not called. [`ErrorKind::Lost`] if the lock was lost, and what
    /// releasing it may tell: then the value is in the error, if `body` had ended.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the lock is released in the background. One that is kept without being polled (in a `select!` loop,
    /// say) keeps the lock for as long as it is kept.
    pub async fn run_write<T>(&self, body: impl AsyncFnOnce(&WriteGuard) -> T) -> Result<T, WorkError<T>> {
        scoped(self.write().await, body, WriteGuard::release).await
    }

    /// Shows the holders and the waiters: at most [`Inspection::MOST`] of each, and the number of the others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let (one, two) = (config.read().await?, config.read().await?);
    /// let seen = config.inspect().await?;
    /// assert_eq!(seen.holder_count(), 2);
    /// assert!(seen.holders.iter().all(|holder| holder.shared));
    /// # drop((one, two));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell; [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if
    /// the server does not answer within one operation timeout.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.core.inspect(&self.name, Kind::Write).await
    }

    /// Frees exactly this grant, tells its holder where the backend can, and lets the next waiter in. `Ok(false)` if
    /// the lock is not held under this grant.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let stuck = config.read().await?;
    /// assert!(config.force_release(stuck.grant_id(), "its machine hangs").await?);
    /// assert!(config.try_write().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot do it; [`ErrorKind::InvalidArgument`] if the reason has more than
    /// 1 KiB; [`ErrorKind::Indeterminate`] if no answer came.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, Error> {
        self.core.force_release(&self.name, Kind::Write, grant, reason).await
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The request for the exclusive grant.
    pub(crate) fn write_request(&self) -> AcquireRequest<'_> {
        self.request(Kind::Write)
    }

    /// The guard of an exclusive grant, and the mark of the owner who uses it.
    pub(crate) fn write_guard(&self, lease: Lease, used: Option<Arc<Owned<UsedGrant>>>) -> WriteGuard {
        WriteGuard { held: Held::new(lease, used), backend: self.backend.clone() }
    }

    pub(crate) async fn acquire_write(&self, wait: Wait) -> Result<Option<WriteGuard>, Error> {
        let held = self.acquire(Kind::Write, wait).await?;
        Ok(held.map(|held| WriteGuard { held, backend: self.backend.clone() }))
    }

    async fn acquire(&self, kind: Kind, wait: Wait) -> Result<Option<Held>, Error> {
        let used = self.used()?;
        let lease = self.core.acquire(self.request(kind), wait, |a, wait| self.ask(a, wait)).await?;
        Ok(lease.map(|lease| Held::new(lease, used)))
    }

    fn request(&self, kind: Kind) -> AcquireRequest<'_> {
        let owner = self.owner.as_ref().unwrap_or(&self.core.owner);
        AcquireRequest { name: &self.name, kind, owner, lease: &self.lease, patience: self.core.options.patience }
    }

    async fn ask(&self, attempt: Arc<Attempt>, wait: Wait) -> Result<Option<Grant>, Error> {
        match (attempt.kind, wait.deadline()) {
            (Kind::Read, None) => self.backend.try_read(&attempt).await,
            (Kind::Read, Some(deadline)) => self.backend.read(&attempt, deadline).await,
            (_, None) => self.backend.try_write(&attempt).await,
            (_, Some(deadline)) => self.backend.write(&attempt, deadline).await,
        }
    }

    /// Marks the explicit owner's use of the lock, until the guard's end; refuses a second one.
    pub(crate) fn used(&self) -> Result<Option<Arc<Owned<UsedGrant>>>, Error> {
        let Some(owner) = &self.owner else { return Ok(None) };
        let used = self.core.owners.uses.exclusive(&self.name, owner.id(), |grant| self.is_in_use(grant));
        used.map(Some).ok_or_else(|| {
            let what = "this owner already uses the lock: it would wait for itself (there is no upgrade; downgrade a write guard)";
            self.core.refuses(Error::new(ErrorKind::Unsupported, Phase::Acquire, what), &self.name)
        })
    }

    /// A use lasts from the request until the guard's end, or until the guard's lock is lost. A downgrade without an answer ends none: the
    /// grant is renewed, and the owner would wait for itself.
    fn is_in_use(&self, grant: &UsedGrant) -> bool {
        match grant.get().map(Weak::upgrade) {
            None => true,
            Some(live) => live.is_some_and(|live| live.is_kept(&*self.core.keeper.clock)),
        }
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name).field("backend", &self.backend.name()).finish()
    }
}
