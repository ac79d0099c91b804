//! The semaphore.

mod permit;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use crate::ErrorKind;
use crate::acquire::{AcquireRequest, Core, Wait};
use crate::driver::Inspection;
use crate::driver::{Attempt, Grant, Kind, SemaphoreBackend};
use crate::error::Error;
use crate::lease::{Lease, WorkError, scoped};
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::GrantId;

pub use permit::Permit;

/// A handle for one semaphore with a number of permits that its clients agree on.
///
/// # Fairness
/// By arrival, where the backend has a queue: a big request is not overtaken by small ones. Each grant has its own
/// lease, so the permits of a dead holder come back.
///
/// # When the lock is lost
/// See [`Lease`].
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let workers = locks.semaphore("workers", 2);
/// let (one, two) = (workers.acquire().await?, workers.acquire().await?);
/// assert!(workers.try_acquire().await?.is_none());
/// one.release().await?;
/// two.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    core: Arc<Core>,
    backend: Arc<dyn SemaphoreBackend>,
    name: LockName,
    limit: u32,
    lease: LeaseOptions,
}

impl Semaphore {
    pub(crate) fn new(core: Arc<Core>, backend: Arc<dyn SemaphoreBackend>, name: LockName, limit: u32) -> Self {
        let lease = core.options.lease;
        Self { core, backend, name, limit, lease }
    }

    /// Sets the lease options of the permits that are taken through this handle.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_core::LeaseOptions;
    ///
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).with_max_hold(Duration::from_secs(3600));
    /// let guard = locks.semaphore("workers", 3).with_lease(lease).acquire().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the TTL of the permits that are taken through this handle.
    ///
    /// The client's [`renew_every`](LeaseOptions::renew_every), if it has one, stays: one of more than half of the new TTL is refused when
    /// the lock is taken. [`with_lease`](Semaphore::with_lease) sets both.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let ttl = std::time::Duration::from_secs(60);
    /// let guard = locks.semaphore("workers", 3).with_ttl(ttl).acquire().await?;
    /// assert!(guard.remaining() > ttl / 2);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// The semaphore's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Returns the number of permits in all.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits for one permit.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire().await?;
    /// assert_eq!(workers.available().await?, 2);
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer for the client's patience;
    /// [`ErrorKind::InvalidArgument`] for a number of permits that is zero or beyond the limit;
    /// [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit; the others of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed permits
    /// that nobody else can have, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    #[doc(alias = "acquire_owned")]
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.acquire_many(1).await
    }

    /// Waits for this many permits, all or nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let two = workers.acquire_many(2).await?;
    /// assert_eq!(two.permits(), 2);
    /// two.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`] for none, or for more than there are in all;
    /// - [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit, where the backend can
    ///   store it;
    /// - [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer for the client's
    ///   patience;
    /// - the others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed permits
    /// that nobody else can have, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    #[doc(alias = "acquire_many_owned")]
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit, Error> {
        let lease = self.core.acquire_unbounded(self.request(permits), |a, wait| self.ask(a, wait)).await?;
        Ok(self.permit(lease, permits))
    }

    /// Takes one permit if it can be had now; `Ok(None)` if not.
    ///
    /// If this client is itself still releasing permits in the background (after a dropped permit, say), a refused try waits until that release
    /// was tried and asks once more, unless half of the operation timeout is over by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 1);
    /// let permit = workers.try_acquire().await?;
    /// assert!(permit.is_some());
    /// assert!(workers.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer within one operation
    /// timeout; [`ErrorKind::InvalidArgument`] for a number of permits that is zero or beyond the limit;
    /// [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit; the others of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    #[doc(alias = "try_acquire_owned")]
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        self.get(1, Wait::Try).await
    }

    /// Takes this many permits if all of them can be had now; `Ok(None)` and none of them if not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let one = workers.acquire().await?;
    /// assert!(workers.try_acquire_many(3).await?.is_none());
    /// one.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer within one operation
    /// timeout; [`ErrorKind::InvalidArgument`] for a number of permits that is zero or beyond the limit;
    /// [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit; the others of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    #[doc(alias = "try_acquire_many_owned")]
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>, Error> {
        self.get(permits, Wait::Try).await
    }

    /// Waits for one permit for at most this long; `Ok(None)` if it cannot be had by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 1);
    /// let permit = workers.acquire().await?;
    /// assert!(workers.try_acquire_for(std::time::Duration::from_millis(10)).await?.is_none());
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer, at the latest one
    /// operation timeout after the deadline; [`ErrorKind::InvalidArgument`] for a number of permits that is zero or
    /// beyond the limit; [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit; the
    /// others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>, Error> {
        self.get(1, self.core.deadline(wait)).await
    }

    /// Waits for this many permits for at most this long; `Ok(None)` and none of them if they cannot be had by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let two = workers.acquire_many(2).await?;
    /// assert!(workers.try_acquire_many_for(2, std::time::Duration::from_millis(10)).await?.is_none()); // one is no help
    /// two.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if the server does not answer, at the latest one
    /// operation timeout after the deadline; [`ErrorKind::InvalidArgument`] for a number of permits that is zero or
    /// beyond the limit; [`ErrorKind::LimitMismatch`] if the permits in use were granted under another limit; the
    /// others of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no permit, queue entry or renewal stays behind.
    pub async fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<Permit>, Error> {
        self.get(permits, self.core.deadline(wait)).await
    }

    /// Waits for a permit, runs `body` while it is held, and releases it.
    ///
    /// `Ok` means that the permit was held when `body` ended, and that it is released. `body` is dropped at its next await point when the permit is
    /// lost; tasks and threads that it has started are not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let used = workers.run(async |permit| permit.permits()).await?;
    /// assert_eq!((used, workers.available().await?), (1, 3));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`acquire`](Semaphore::acquire): then `body` was not called. [`ErrorKind::Lost`] if the permit was lost, and what
    /// releasing it may tell: then the value is in the error, if `body` had ended.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the permit is released in the background. One that is kept without being polled (in a `select!` loop,
    /// say) keeps the permit for as long as it is kept.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&Permit) -> T) -> Result<T, WorkError<T>> {
        scoped(self.acquire().await, body, Permit::release).await
    }

    /// Returns the number of permits that nobody holds at this instant. Cheap where the server counts them, however
    /// many are held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let two = workers.acquire_many(2).await?;
    /// assert_eq!(workers.available().await?, 1);
    /// two.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend cannot tell; [`ErrorKind::Unavailable`] or [`ErrorKind::Indeterminate`] if
    /// the server does not answer within one operation timeout.
    ///
    /// # Cancel safety
    /// Reads only.
    #[doc(alias = "available_permits")]
    pub async fn available(&self) -> Result<u32, Error> {
        let named = |error| self.core.named(error, &self.name);
        self.name.check().map_err(named)?;
        let held = self.core.operate(self.backend.permits_held(&self.name, self.limit)).await.map_err(named)?;
        Ok(self.limit.saturating_sub(u32::try_from(held).unwrap_or(u32::MAX)))
    }

    /// Shows the holders and the waiters: at most [`Inspection::MOST`] of each, and the number of the others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let two = workers.acquire_many(2).await?;
    /// assert_eq!(workers.inspect().await?.holders[0].permits, 2);
    /// two.release().await?;
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
        self.core.inspect(&self.name, self.kind(1)).await
    }

    /// Frees exactly this grant, tells its holder where the backend can, and lets the next waiter in. `Ok(false)` if
    /// the permits are not held under this grant.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 1);
    /// let stuck = workers.acquire().await?;
    /// assert!(workers.force_release(stuck.grant_id(), "its machine hangs").await?);
    /// assert!(workers.try_acquire().await?.is_some());
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
        self.core.force_release(&self.name, self.kind(1), grant, reason).await
    }

    async fn get(&self, permits: u32, wait: Wait) -> Result<Option<Permit>, Error> {
        let lease = self.core.acquire(self.request(permits), wait, |a, wait| self.ask(a, wait)).await?;
        Ok(lease.map(|lease| self.permit(lease, permits)))
    }

    fn permit(&self, lease: Lease, permits: u32) -> Permit {
        Permit::new(lease, permits, self.backend.clone())
    }

    fn kind(&self, permits: u32) -> Kind {
        Kind::Permits { permits, limit: self.limit }
    }

    fn request(&self, permits: u32) -> AcquireRequest<'_> {
        AcquireRequest {
            name: &self.name,
            kind: self.kind(permits),
            owner: &self.core.owner,
            lease: &self.lease,
            patience: self.core.options.patience,
        }
    }

    async fn ask(&self, attempt: Arc<Attempt>, wait: Wait) -> Result<Option<Grant>, Error> {
        match wait.deadline() {
            None => self.backend.try_acquire(&attempt).await,
            Some(deadline) => self.backend.acquire(&attempt, deadline).await,
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("backend", &self.backend.name())
            .finish()
    }
}
