//! A connected client: what makes the handles.

use std::sync::Arc;

use crate::acquire::Core;
use crate::driver::{
    AdoptBackend, Backend, MutexBackend, RecordBackend, ReentrantBackend, RwLockBackend, SemaphoreBackend,
};
use crate::driver::{Guarantee, Guarantees};
use crate::error::Error;
use crate::locks::RecordedMutex;
use crate::locks::ReentrantMutex;
use crate::locks::RwLock;
use crate::locks::Semaphore;
use crate::locks::{DetachedMutex, Mutex, MutexGuard, adopt};
use crate::name::LockName;
use crate::options::ClientOptions;
use crate::owner::Owner;

/// A connected client of one backend: makes handles for the kinds that the backend implements.
///
/// Cheap to clone. Every clone and every handle shares one keeper, so that renewals travel in batches. The backend
/// crates wrap it (`RedisLocks`, …) and add the ways to connect. When the last clone, handle and guard is gone, the
/// background work ends.
///
/// # Runtime
/// The background work runs on the tokio runtime on which the client was made, also for locks that are taken on others. When
/// that one ends, the work goes on upon the runtime of a holder: where a lock was taken, where its loss is waited for, or
/// where its guard is looked at next. A runtime that exists but is not driven renews nothing: leases then end at their
/// deadlines. A task that waits for a loss, or works in [`while_held`](crate::Lease::while_held), is told by the timers of its own
/// runtime, even if the client's has ended or stands still. Whether renewals reach the server from another runtime is
/// [`Guarantee::RenewalAcrossRuntimes`]. Every runtime needs its timers (`enable_time`). A synchronous program keeps a multi-threaded
/// runtime and calls `Handle::block_on`: a `current_thread` runtime is not driven between two calls of `block_on`.
///
/// # Bounds
/// A client keeps one entry for each lock that it holds, one for each owner that is inside a reentrant lock or has named itself
/// at a read-write lock, and one for each call under way; they go with the guard and the call. Where the client has to end a lock that was
/// [left](crate::MutexGuard::leave), one entry stays until it has. In the background there are
/// two tasks, and what they have to do is limited: up to 65,536 clean-ups are tried for the first time, and as many wait for
/// their next try; what comes on top and would expire is left to the server, and [`close`](Client::close) tells how many. A request
/// for renewals carries up to 128 leases. Names are limited to 1,024 bytes, labels and reasons to 1 KiB, an inspection to 500
/// holders and 500 waiters. Waits are limited by whoever calls: each is one call. The backends tell their own bounds.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let mutex = locks.mutex("orders/42"); // no traffic yet
/// let guard = mutex.lock().await?;
/// let clone = locks.clone(); // the same client
/// assert!(clone.mutex("orders/42").try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client<B> {
    core: Arc<Core>,
    backend: Arc<B>,
}

impl<B> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self { core: self.core.clone(), backend: self.backend.clone() }
    }
}

impl<B: Backend> Client<B> {
    /// A client over a connected backend.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an option is out of its range.
    pub fn new(backend: B, options: ClientOptions) -> Result<Self, Error> {
        options.check()?;
        Ok(Self::with_checked(backend, options))
    }

    pub(crate) fn with_checked(backend: B, options: ClientOptions) -> Self {
        let backend = Arc::new(backend);
        Self { core: Arc::new(Core::new(backend.clone(), options)), backend }
    }

    /// The backend itself.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Returns the promises of this client's backend, as it is configured.
    ///
    /// # Examples
    /// ```
    /// # let locks = lock_core::MemoryLocks::new();
    /// assert_eq!(locks.guarantees().fifo, lock_core::Support::Yes);
    /// ```
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    /// Refuses a configuration that does not keep every promise in `wanted`. One that holds only with a reservation
    /// ([`Support::Unless`](crate::Support::Unless)) is not kept.
    ///
    /// # Examples
    /// ```
    /// use lock_core::{ErrorKind, Guarantee, MemoryLocks};
    ///
    /// let locks = MemoryLocks::new();
    /// locks.require(&[Guarantee::Fencing, Guarantee::Fifo])?;
    /// let refused = locks.require(&[Guarantee::ExclusionAcrossRestart]).unwrap_err(); // it ends with its process
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported);
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), listing everything that fails at once.
    pub fn require(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        self.guarantees().require(wanted).map_err(|error| error.with_backend(self.backend.name()))
    }

    /// Refuses a configuration that does not keep every promise in `wanted`; a promise with a reservation
    /// ([`Support::Unless`](crate::Support::Unless)) counts as kept. A call that needs a promise, such as
    /// [`recorded`](Self::recorded) for [`Guarantee::Record`], works then.
    ///
    /// # Examples
    /// ```
    /// use lock_core::{Guarantee, MemoryLocks};
    ///
    /// let locks = MemoryLocks::new();
    /// locks.require_with_reservations(&[Guarantee::Record, Guarantee::Leave])?;
    /// assert!(locks.require_with_reservations(&[Guarantee::RecordAcrossRestart]).is_err()); // it ends with its process
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), listing everything that fails at once.
    pub fn require_with_reservations(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        let required = self.guarantees().require_with_reservations(wanted);
        required.map_err(|error| error.with_backend(self.backend.name()))
    }

    /// The owner that this client's grants carry.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.core.owner
    }

    /// Closes this client before a program ends: waits for at most one operation timeout until the server has confirmed the
    /// releases and cancellations in the background. Guards that were dropped just before then leave nothing behind.
    ///
    /// From this call on nobody takes a lock through this client, its clones and handles: waits end, and new
    /// acquisitions are refused, with [`ErrorKind::Closed`](crate::ErrorKind::Closed). Guards that are still there stay
    /// valid, are renewed, and can be released. A lock that was [left](crate::MutexGuard::leave) stays taken, unless its server leaves it to the
    /// client to end it: then it is released now. Calling again waits again.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::MemoryLocks::new();
    /// let guard = locks.mutex("report").lock().await?;
    /// drop(guard); // releases the lock in the background
    /// locks.close().await?; // now it is free
    /// assert_eq!(locks.mutex("report").lock().await.unwrap_err().kind(), lock_core::ErrorKind::Closed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate), with the number of releases and cancellations that
    /// were not confirmed in time. They go on while the runtime lives; otherwise what they left ends with its lease.
    ///
    /// # Cancel safety
    /// The client is closed although the future was dropped.
    pub async fn close(&self) -> Result<(), Error> {
        self.core.close().await
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn shared(&self) -> Arc<B> {
        self.backend.clone()
    }
}

impl<B: MutexBackend> Client<B> {
    /// A handle for the mutex of this name. No traffic; the name is checked when the lock is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// assert_eq!(orders.name().as_str(), "orders/42");
    /// let guard = orders.lock().await?; // the first request
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn mutex(&self, name: impl Into<LockName>) -> Mutex {
        Mutex::new(self.core.clone(), self.backend.clone(), self.core.canonical(name))
    }
}

impl<B: AdoptBackend> Client<B> {
    /// Takes over a mutex that another client has [detached](crate::MutexGuard::detach), under this client's lease options. Its token
    /// stays. It is held and renewed once the server has answered; the lease counts from this call's request, whatever the message says.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// use lock_core::memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let (web, worker) = (store.connect(), store.connect()); // two processes
    /// let detached = web.mutex("import/7").lock().await?.detach().await?;
    /// let guard = worker.adopt(&detached).await?; // renewed from now on
    /// assert_eq!(guard.fencing_token(), detached.token);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) if it has ended, or was adopted before; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where
    /// grants cannot be passed on; [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if nothing was sent;
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no answer came: then it is either detached as before or, if it was adopted,
    /// released in the background.
    ///
    /// # Cancel safety
    /// A dropped call is undone in the background: what it has adopted is released.
    pub async fn adopt(&self, detached: &DetachedMutex) -> Result<MutexGuard, Error> {
        let backend: Arc<dyn AdoptBackend> = self.backend.clone();
        adopt(&self.core, &backend, detached, self.core.options.lease).await
    }
}

impl<B: RecordBackend> Client<B> {
    /// A handle for the mutex of this name with the record beside it. No traffic; the name is checked when it is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// guard.write(b"up to line 17").await?; // only the holder can
    /// guard.release().await?;
    /// let record = report.read().await?; // anybody can, without the lock
    /// assert_eq!(record.map(|record| record.data), Some(b"up to line 17".to_vec()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the configuration has no fencing tokens or keeps no
    /// records, and for a key that is shared with other libraries.
    pub fn recorded(&self, name: impl Into<LockName>) -> Result<RecordedMutex, Error> {
        let backend: Arc<dyn RecordBackend> = self.backend.clone();
        RecordedMutex::new(&self.core, &backend, self.core.canonical(name))
    }
}

impl<B: ReentrantBackend> Client<B> {
    /// A handle for the reentrant lock of this name. No traffic; the name is checked when the lock is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (tree, me) = (locks.reentrant("tree"), lock_core::Owner::new());
    /// let outer = tree.lock(&me).await?;
    /// let inner = tree.lock(&me).await?; // it does not wait for itself
    /// inner.release().await?;
    /// outer.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(&self, name: impl Into<LockName>) -> ReentrantMutex {
        ReentrantMutex::new(self.core.clone(), self.backend.clone(), self.core.canonical(name))
    }
}

impl<B: RwLockBackend> Client<B> {
    /// A handle for the read-write lock of this name. No traffic; the name is checked when the lock is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let read = config.read().await?;
    /// assert!(config.try_write().await?.is_none()); // a reader keeps writers out
    /// read.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rwlock(&self, name: impl Into<LockName>) -> RwLock {
        RwLock::new(self.core.clone(), self.backend.clone(), self.core.canonical(name))
    }
}

impl<B: SemaphoreBackend> Client<B> {
    /// A handle for the semaphore of this name with `limit` permits in all. No traffic; name and limit are checked
    /// when the semaphore is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// assert_eq!(workers.limit(), 3);
    /// let permit = workers.acquire().await?;
    /// assert_eq!(workers.available().await?, 2);
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn semaphore(&self, name: impl Into<LockName>, limit: u32) -> Semaphore {
        Semaphore::new(self.core.clone(), self.backend.clone(), self.core.canonical(name), limit)
    }
}
