//! The read-write lock.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::acquire::{AcquireRequest, Core, Wait};
use crate::driver::Inspection;
use crate::driver::bound::bounded;
use crate::driver::{Attempt, Grant, Kind, RwLockBackend};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::locks::Fenced;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::{GrantId, Owner};
use crate::owners::{Owned, UsedGrant};
use crate::token::FencingToken;

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
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the TTL of the guards that are taken through this handle.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// Asks for the lock in this owner's name: a request while the owner already has a guard of this lock in
    /// this client is refused rather than left to wait for itself.
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
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the configuration has no sound tokens.
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
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        let used = self.used()?;
        let lease = self.core.acquire_unbounded(self.request(Kind::Read), |a, wait| self.ask(a, wait)).await?;
        Ok(ReadGuard(Held::new(lease, used)))
    }

    /// Takes a shared grant if it can be had now; `Ok(None)` if not.
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
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        let used = self.used()?;
        let lease = self.core.acquire_unbounded(self.request(Kind::Write), |a, wait| self.ask(a, wait)).await?;
        Ok(WriteGuard { held: Held::new(lease, used), backend: self.backend.clone() })
    }

    /// Takes the exclusive grant if it can be had now; `Ok(None)` if not.
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
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        let held = self.acquire(Kind::Write, Wait::Try).await?;
        Ok(held.map(|held| WriteGuard { held, backend: self.backend.clone() }))
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
        let held = self.acquire(Kind::Write, self.core.deadline(wait)).await?;
        Ok(held.map(|held| WriteGuard { held, backend: self.backend.clone() }))
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
        match (attempt.kind, wait) {
            (Kind::Read, Wait::Try) => self.backend.try_read(&attempt).await,
            (Kind::Read, Wait::Until(deadline)) => self.backend.read(&attempt, deadline).await,
            (_, Wait::Try) => self.backend.try_write(&attempt).await,
            (_, Wait::Until(deadline)) => self.backend.write(&attempt, deadline).await,
        }
    }

    /// Marks the explicit owner's use of the lock, until the guard's end; refuses a second one.
    fn used(&self) -> Result<Option<Arc<Owned<UsedGrant>>>, Error> {
        let Some(owner) = &self.owner else { return Ok(None) };
        let used = self.core.owners.uses.exclusive(&self.name, owner.id(), |grant| self.is_in_use(grant));
        used.map(Some).ok_or_else(|| {
            let what = "this owner already uses the lock: it would wait for itself (there is no upgrade; downgrade a write guard)";
            self.core.named(Error::new(ErrorKind::Unsupported, Phase::Acquire, what), &self.name)
        })
    }

    /// A use lasts from the request until the guard's end, or until the guard's lock is lost.
    fn is_in_use(&self, grant: &UsedGrant) -> bool {
        match grant.get().map(Weak::upgrade) {
            None => true,
            Some(live) => live.is_some_and(|live| live.is_held(&*self.core.keeper.clock)),
        }
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name).field("backend", &self.backend.name()).finish()
    }
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    _used: Option<Arc<Owned<UsedGrant>>>,
}

impl Held {
    fn new(lease: Lease, used: Option<Arc<Owned<UsedGrant>>>) -> Self {
        if let Some(used) = &used {
            // Set once, by the request that made the use.
            let _ = used.set(Arc::downgrade(&lease.live));
        }
        Self { lease, _used: used }
    }
}

/// A shared grant of a [`RwLock`]. Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let config = locks.rwlock("config");
/// let (one, other) = (config.read().await?, config.read().await?);
/// assert_ne!(one.grant_id(), other.grant_id()); // each has a lease of its own
/// drop(one); // released in the background; the other one is not touched
/// assert!(other.is_held());
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard(Held);

impl ReadGuard {
    /// The token to present to the resource's shared register, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.lease.live.token
    }

    /// Gives the shared grant back and reports the outcome, within one operation timeout.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock had been lost; [`ErrorKind::Indeterminate`] if no confirmation came: the
    /// client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.0.lease.release().await
    }
}

impl Deref for ReadGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0.lease
    }
}

/// The exclusive grant of a [`RwLock`]. Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let write = locks.rwlock("config").write().await?;
/// write.while_held(async { /* write */ }).await?; // dropped if the lock is lost
/// let read = write.downgrade().await?; // others may read too from now on
/// read.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct WriteGuard {
    held: Held,
    backend: Arc<dyn RwLockBackend>,
}

impl WriteGuard {
    /// The token to present to the resource's exclusive register, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.lease.live.token
    }

    /// Turns the exclusive grant into a shared one, without a gap in which a waiting writer could enter. The token
    /// stays. Waiting readers in front of the queue are let in.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let read = config.write().await?.downgrade().await?;
    /// assert!(config.try_read().await?.is_some()); // other readers are let in
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The write guard comes back in the error: [`ErrorKind::Lost`] or [`ErrorKind::NotHeld`] if it is gone,
    /// [`ErrorKind::Indeterminate`] if no answer came: it may be a shared grant at the server already, with readers beside
    /// it, so that the write guard is held no more ([`is_held`](Lease::is_held) is false). Calling again is safe, and turns
    /// it into a read guard once it is answered.
    ///
    /// # Cancel safety
    /// Dropping the future drops the guard: the lock is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        let (live, sent_at) = (self.held.lease.live.clone(), self.held.lease.keeper.clock.now());
        if let Err(error) = self.check(Phase::Downgrade)
            && !live.is_doubtful()
        {
            return Err(DowngradeError { guard: self, error });
        }
        let asked = self.backend.downgrade(&live.attempt);
        let clock = &*self.held.lease.keeper.clock;
        match bounded(clock, live.attempt.op_timeout, Phase::Downgrade, asked).await {
            Ok(()) => {
                live.set_doubtful(false);
                Ok(ReadGuard(self.held))
            }
            Err(error) => {
                if !error.is_definite() {
                    live.set_doubtful(true);
                } else if error.kind() == ErrorKind::NotHeld {
                    self.held.lease.is_gone(sent_at);
                }
                let error = self.named(error);
                Err(DowngradeError { guard: self, error })
            }
        }
    }

    /// Gives the exclusive grant back and reports the outcome, within one operation timeout.
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock had been lost; [`ErrorKind::Indeterminate`] if no confirmation came: the
    /// client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.held.lease.release().await
    }
}

impl Deref for WriteGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.held.lease
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteGuard").field(&self.held.lease).finish()
    }
}

/// A downgrade that failed, with the guard it was asked of.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let config = locks.rwlock("config");
/// let write = config.write().await?;
/// config.force_release(write.grant_id(), "its machine hangs").await?;
/// let failed = write.downgrade().await.unwrap_err();
/// assert!(failed.error.is_definite());
/// assert!(!failed.guard.is_held()); // the write guard is back
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DowngradeError<G = WriteGuard> {
    /// The write guard, as it was.
    pub guard: G,
    /// The reason of the failure.
    pub error: Error,
}

impl<G> fmt::Display for DowngradeError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<G: fmt::Debug> std::error::Error for DowngradeError<G> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// For callers that have no use for the guard: it is dropped, and the lock released in the background.
impl<G> From<DowngradeError<G>> for Error {
    fn from(failed: DowngradeError<G>) -> Self {
        failed.error
    }
}
