//! The mutex.

mod guard;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{AcquireRequest, Core, Wait};
use crate::driver::{Attempt, Grant, Kind, MutexBackend};
use crate::driver::{Holder, Inspection};
use crate::error::Error;
use crate::lease::{WorkError, check_leave, scoped};
use crate::locks::Fenced;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::GrantId;

pub use self::guard::MutexGuard;

/// A handle for one mutex: cheap to clone, `Send + Sync + 'static`, the same type for every backend.
///
/// Not reentrant: a second `lock` by the same task waits like anybody's, and `try_lock` says `None`.
///
/// # Fairness
/// First come, first served, where the backend has a queue ([`Guarantee::Fifo`](crate::Guarantee::Fifo)).
///
/// # When the lock is lost
/// See [`Lease`](crate::Lease). The same handle can lock again; the new grant has a new id and a new token.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let orders = locks.mutex("orders/42");
/// let guard = orders.lock().await?;
/// assert!(orders.try_lock().await?.is_none()); // somebody holds it: no error
/// guard.release().await?;
/// assert!(orders.try_lock().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Mutex {
    core: Arc<Core>,
    backend: Arc<dyn MutexBackend>,
    name: LockName,
    lease: LeaseOptions,
}

impl Mutex {
    pub(crate) fn new(core: Arc<Core>, backend: Arc<dyn MutexBackend>, name: LockName) -> Self {
        let lease = core.options.lease;
        Self { core, backend, name, lease }
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
    /// let guard = locks.mutex("report").with_lease(lease).lock().await?;
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
    /// the lock is taken. [`with_lease`](Mutex::with_lease) sets both.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let ttl = std::time::Duration::from_secs(60);
    /// let guard = locks.mutex("report").with_ttl(ttl).lock().await?;
    /// assert!(guard.remaining() > ttl / 2);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.lease.ttl = ttl;
        self
    }

    /// The lease options of the guards that are taken through this handle.
    #[must_use]
    pub fn lease(&self) -> LeaseOptions {
        self.lease
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
    /// use lock_core::fence::FenceGate;
    ///
    /// let gate = FenceGate::new(); // beside the resource
    /// let guard = locks.mutex("orders/42").fenced()?.lock().await?;
    /// let token = guard.fencing_token(); // not an `Option`
    /// assert!(gate.admit_exclusive(token).is_ok());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the configuration has no fencing tokens. Whether they keep growing when a server
    /// restarts or another one takes over is another question: [`Guarantee::FencingAcrossRestart`](crate::Guarantee::FencingAcrossRestart),
    /// [`Guarantee::FencingAcrossFailover`](crate::Guarantee::FencingAcrossFailover).
    pub fn fenced(self) -> Result<Fenced<Self>, Error> {
        self.core.require_fencing(&self.name)?;
        Ok(Fenced::new(self))
    }

    /// Waits for the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// assert!(guard.is_held());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a name or TTL out of range, a
    ///   [`renew_every`](LeaseOptions::renew_every) of more than half of the TTL, or a label of more than 1 KiB;
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) if the server gave no answer at all for
    ///   [`ClientOptions::patience`](crate::ClientOptions::patience);
    /// - [`Indeterminate`](crate::ErrorKind::Indeterminate) if it is unknown whether a request was carried out; it is
    ///   undone in the background;
    /// - [`TimedOut`](crate::ErrorKind::TimedOut) if the grant arrived after its own lease had ended;
    /// - [`Closed`](crate::ErrorKind::Closed) once the client was [closed](crate::Client::close);
    /// - [`Denied`](crate::ErrorKind::Denied), [`Protocol`](crate::ErrorKind::Protocol): see [`ErrorKind`](crate::ErrorKind).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. It is cleaned up at once if the
    /// link is healthy, by the TTL otherwise.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    #[doc(alias = "lock_owned")]
    pub async fn lock(&self) -> Result<MutexGuard, Error> {
        self.core.acquire_unbounded(self.request(), |attempt, wait| self.ask(attempt, wait)).await.map(MutexGuard::of)
    }

    /// Takes the lock if it is free; `Ok(None)` if somebody else holds it.
    ///
    /// If this client is itself still releasing the lock in the background (after a dropped guard, say), a refused try waits until that release
    /// was tried and asks once more, unless half of the operation timeout is over by then.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.mutex("report");
    /// match report.try_lock().await? {
    ///     Some(guard) => guard.release().await?, // do the work before this
    ///     None => {}                             // somebody else is at it
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Indeterminate`](crate::ErrorKind::Indeterminate) if the
    /// server does not answer within one operation timeout; the others of [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    #[doc(alias = "try_lock_owned")]
    pub async fn try_lock(&self) -> Result<Option<MutexGuard>, Error> {
        self.acquire(Wait::Try).await
    }

    /// Waits for the lock for at most this long; `Ok(None)` if somebody else still holds it then.
    ///
    /// The time is one deadline for the whole call. `Duration::ZERO` is a try, `Duration::MAX` waits without limit.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.mutex("report");
    /// let guard = report.lock().await?;
    /// assert!(report.try_lock_for(Duration::from_millis(10)).await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Indeterminate`](crate::ErrorKind::Indeterminate) if the
    /// server does not answer, at most one operation timeout after the deadline; the others of [`lock`](Mutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<MutexGuard>, Error> {
        self.acquire(self.core.deadline(wait)).await
    }

    /// Refuses a time for which this lock cannot be left, as [`MutexGuard::leave`] would. No traffic.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where locks cannot be left ([`Guarantee::Leave`](crate::Guarantee::Leave));
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `time` is zero, or more than 24 h or the configuration's longest lease.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.mutex("report");
    /// assert!(report.check_leave(Duration::from_secs(60)).is_ok());
    /// assert!(report.check_leave(Duration::MAX).is_err());
    /// # Ok(()) }
    /// ```
    pub fn check_leave(&self, time: Duration) -> Result<(), Error> {
        check_leave(&self.core.keeper, &self.name, time)
    }

    /// Waits for the lock, runs `body` while it is held, and releases it.
    ///
    /// `Ok` means that the lock was held when `body` ended, and that it is released. `body` is dropped at its next await point when the lock is
    /// lost; tasks and threads that it has started are not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// let total = orders.run(async |guard| guard.fencing_token().map(|token| token.as_u64())).await?;
    /// assert!(total.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`lock`](Mutex::lock): `body` was not called. [`Lost`](crate::ErrorKind::Lost) if the lock was lost, and those of
    /// [`release`](MutexGuard::release): the error has the value of `body`, if that had ended.
    ///
    /// # Cancel safety
    /// A dropped call drops `body`, and the lock is released in the background. One that is kept without being polled (in a `select!` loop,
    /// say) keeps the lock for as long as it is kept.
    pub async fn run<T>(&self, body: impl AsyncFnOnce(&MutexGuard) -> T) -> Result<T, WorkError<T>> {
        scoped(self.lock().await, body, MutexGuard::release).await
    }

    /// Shows the holders and the waiters: since when, with which grant. Lists at most [`Inspection::MOST`] of each, and
    /// counts the others.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// let guard = orders.lock().await?;
    /// let seen = orders.inspect().await?;
    /// assert_eq!(seen.holders[0].grant, Some(guard.grant_id()));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot tell;
    /// [`Unavailable`](crate::ErrorKind::Unavailable) or [`Indeterminate`](crate::ErrorKind::Indeterminate) if the
    /// server does not answer within one operation timeout.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn inspect(&self) -> Result<Inspection, Error> {
        self.core.inspect(&self.name, Kind::Mutex).await
    }

    /// Shows the holder alone; `None` if the lock is free. Unlike [`inspect`](Mutex::inspect) it shows no waiters. On Redis it
    /// costs the same however many there are; on ZooKeeper their names are listed; elsewhere it is an inspection.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// assert!(orders.holder().await?.is_none());
    /// let guard = orders.lock().await?;
    /// let holder = orders.holder().await?.expect("it is held");
    /// assert_eq!(holder.grant, Some(guard.grant_id()));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`inspect`](Mutex::inspect).
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn holder(&self) -> Result<Option<Holder>, Error> {
        self.core.holder(&self.name).await
    }

    /// Frees exactly this grant, tells its holder where the backend can, and lets the next waiter in. `Ok(false)` if
    /// the lock is not held under this grant.
    ///
    /// The former holder may still be at work: see [`fence`](crate::fence).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// let stuck = orders.lock().await?;
    /// assert!(orders.force_release(stuck.grant_id(), "its machine hangs").await?);
    /// assert!(orders.try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if the backend cannot do it;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the reason has more than 1 KiB;
    /// [`Indeterminate`](crate::ErrorKind::Indeterminate) if no answer came.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, Error> {
        self.core.force_release(&self.name, Kind::Mutex, grant, reason).await
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) async fn acquire(&self, wait: Wait) -> Result<Option<MutexGuard>, Error> {
        let lease = self.core.acquire(self.request(), wait, |attempt, wait| self.ask(attempt, wait)).await?;
        Ok(lease.map(MutexGuard::of))
    }

    pub(crate) fn request(&self) -> AcquireRequest<'_> {
        AcquireRequest {
            name: &self.name,
            kind: Kind::Mutex,
            owner: &self.core.owner,
            lease: &self.lease,
            patience: self.core.options.patience,
        }
    }

    async fn ask(&self, attempt: Arc<Attempt>, wait: Wait) -> Result<Option<Grant>, Error> {
        match wait.deadline() {
            None => self.backend.try_lock(&attempt).await,
            Some(deadline) => self.backend.lock(&attempt, deadline).await,
        }
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("backend", &self.backend.name()).finish()
    }
}
