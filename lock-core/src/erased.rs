//! One type for an application that picks its backend at run time.

use std::fmt;
use std::sync::Arc;

use crate::acquire::Core;
use crate::client::Client;
use crate::driver::{AdoptBackend, MutexBackend, RecordBackend, ReentrantBackend, RwLockBackend, SemaphoreBackend};
use crate::driver::{Guarantee, Guarantees};
use crate::error::{Error, ErrorKind, Phase};
use crate::locks::RecordedMutex;
use crate::locks::ReentrantMutex;
use crate::locks::RwLock;
use crate::locks::Semaphore;
use crate::locks::{DetachedMutex, Mutex, MutexGuard, adopt};
use crate::name::LockName;

/// The locks of one connected client, whatever its backend: the mutex always, the other kinds if it has them.
///
/// # Examples
/// ```
/// use lock_core::{Locks, MemoryLocks};
///
/// let locks: Locks = MemoryLocks::new().into();
/// let _mutex = locks.mutex("a");
/// assert!(locks.semaphore("b", 3).is_some());
/// ```
#[derive(Clone)]
pub struct Locks {
    core: Arc<Core>,
    mutex: Arc<dyn MutexBackend>,
    reentrant: Option<Arc<dyn ReentrantBackend>>,
    rwlock: Option<Arc<dyn RwLockBackend>>,
    semaphore: Option<Arc<dyn SemaphoreBackend>>,
    record: Option<Arc<dyn RecordBackend>>,
    adopt: Option<Arc<dyn AdoptBackend>>,
}

impl Locks {
    /// For authors of backends: only the mutex of this client. Add what else the backend has with the `with` calls.
    ///
    /// # Examples
    /// ```
    /// use lock_core::{Locks, MemoryLocks};
    ///
    /// let client = MemoryLocks::new();
    /// let locks = Locks::new(&client).with_semaphore(&client);
    /// assert!(locks.semaphore("workers", 3).is_some());
    /// assert!(locks.rwlock("config").is_none()); // it was not added
    /// ```
    #[must_use]
    pub fn new<B: MutexBackend>(client: &Client<B>) -> Self {
        Self {
            core: client.core().clone(),
            mutex: client.shared(),
            reentrant: None,
            rwlock: None,
            semaphore: None,
            record: None,
            adopt: None,
        }
    }

    /// Adds the reentrant lock of the same client.
    ///
    /// # Examples
    /// ```
    /// # let client = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::new(&client).with_reentrant(&client);
    /// assert!(locks.reentrant("tree").is_some());
    /// ```
    #[must_use]
    pub fn with_reentrant<B: ReentrantBackend>(mut self, client: &Client<B>) -> Self {
        self.reentrant = Some(client.shared());
        self
    }

    /// Adds the read-write lock of the same client.
    ///
    /// # Examples
    /// ```
    /// # let client = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::new(&client).with_rwlock(&client);
    /// assert!(locks.rwlock("config").is_some());
    /// ```
    #[must_use]
    pub fn with_rwlock<B: RwLockBackend>(mut self, client: &Client<B>) -> Self {
        self.rwlock = Some(client.shared());
        self
    }

    /// Adds the semaphore of the same client.
    ///
    /// # Examples
    /// ```
    /// # let client = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::new(&client).with_semaphore(&client);
    /// assert!(locks.semaphore("workers", 3).is_some());
    /// ```
    #[must_use]
    pub fn with_semaphore<B: SemaphoreBackend>(mut self, client: &Client<B>) -> Self {
        self.semaphore = Some(client.shared());
        self
    }

    /// Adds the records of the same client.
    ///
    /// # Examples
    /// ```
    /// # let client = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::new(&client).with_record(&client);
    /// assert!(locks.recorded("report").is_ok());
    /// ```
    #[must_use]
    pub fn with_record<B: RecordBackend>(mut self, client: &Client<B>) -> Self {
        self.record = Some(client.shared());
        self
    }

    /// Adds the adoption of grants by the same client.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let client = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::new(&client).with_adopt(&client);
    /// let detached = locks.mutex("import/7").lock().await?.detach().await?;
    /// assert!(locks.adopt(&detached).await.is_ok());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_adopt<B: AdoptBackend>(mut self, client: &Client<B>) -> Self {
        self.adopt = Some(client.shared());
        self
    }

    /// Returns a handle for the mutex of this name. No traffic; the name is checked when the lock is first used.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// let guard = locks.mutex("orders/42").lock().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn mutex(&self, name: impl Into<LockName>) -> Mutex {
        Mutex::new(self.core.clone(), self.mutex.clone(), self.core.canonical(name))
    }

    /// Returns a handle for the reentrant lock of this name, if the backend has reentrant locks. No traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// let tree = locks.reentrant("tree").expect("this backend has them");
    /// let me = lock_core::Owner::new();
    /// let (outer, inner) = (tree.lock(&me).await?, tree.lock(&me).await?);
    /// inner.release().await?;
    /// outer.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(&self, name: impl Into<LockName>) -> Option<ReentrantMutex> {
        self.reentrant
            .as_ref()
            .map(|backend| ReentrantMutex::new(self.core.clone(), backend.clone(), self.core.canonical(name)))
    }

    /// Returns a handle for the read-write lock of this name, if the backend has read-write locks. No traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// if let Some(config) = locks.rwlock("config") {
    ///     let read = config.read().await?;
    ///     read.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rwlock(&self, name: impl Into<LockName>) -> Option<RwLock> {
        self.rwlock.as_ref().map(|backend| RwLock::new(self.core.clone(), backend.clone(), self.core.canonical(name)))
    }

    /// Returns a handle for the semaphore of this name with `limit` permits in all, if the backend has semaphores. No
    /// traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// if let Some(workers) = locks.semaphore("workers", 3) {
    ///     let permit = workers.acquire().await?;
    ///     permit.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn semaphore(&self, name: impl Into<LockName>, limit: u32) -> Option<Semaphore> {
        self.semaphore
            .as_ref()
            .map(|backend| Semaphore::new(self.core.clone(), backend.clone(), self.core.canonical(name), limit))
    }

    /// Returns a handle for the mutex of this name with the record beside it. No traffic.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// let guard = locks.recorded("report")?.lock().await?;
    /// guard.write(b"up to line 17").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the backend keeps no records, as it is configured, or has no fencing tokens, and for
    /// a key that is shared with other libraries.
    pub fn recorded(&self, name: impl Into<LockName>) -> Result<RecordedMutex, Error> {
        let name = self.core.canonical(name);
        let Some(backend) = &self.record else {
            let what = "this backend keeps no records";
            return Err(self.core.named(Error::new(ErrorKind::Unsupported, Phase::Configure, what), &name));
        };
        RecordedMutex::new(&self.core, backend, name)
    }

    /// Takes over a mutex that another client has [detached](crate::MutexGuard::detach), under this client's lease options. Its token
    /// stays. It is held and renewed once the server has answered; the lease counts from this call's request, whatever the message says.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// let locks = lock_core::Locks::from(lock_core::MemoryLocks::new());
    /// let detached = locks.mutex("import/7").lock().await?.detach().await?; // in one process
    /// let guard = locks.adopt(&detached).await?; // in another one
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if it has ended, or was adopted before; [`ErrorKind::Unsupported`] where
    /// grants cannot be passed on; [`ErrorKind::Unavailable`] if nothing was sent;
    /// [`ErrorKind::Indeterminate`] if no answer came: then it is either detached as before or, if it was adopted,
    /// released in the background.
    ///
    /// # Cancel safety
    /// A dropped call is undone in the background: what it has adopted is released.
    pub async fn adopt(&self, detached: &DetachedMutex) -> Result<MutexGuard, Error> {
        let Some(backend) = &self.adopt else {
            let what = "this backend's grants cannot be passed on";
            return Err(self.core.refuses(Error::new(ErrorKind::Unsupported, Phase::Acquire, what), &detached.name));
        };
        adopt(&self.core, backend, detached, self.core.options.lease).await
    }

    /// The backend's name, such as `"redis"`.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        self.mutex.name()
    }

    /// Returns the promises of the client's backend, as it is configured.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.mutex.guarantees()
    }

    /// Refuses a configuration that does not keep every promise in `wanted`. One that holds only with a reservation
    /// ([`Support::Unless`](crate::Support::Unless)) is not kept.
    ///
    /// # Examples
    /// ```
    /// use lock_core::{Guarantee, Locks, MemoryLocks};
    ///
    /// let locks = Locks::from(MemoryLocks::new());
    /// locks.require(&[Guarantee::Fencing, Guarantee::Fifo])?;
    /// assert!(locks.require(&[Guarantee::ExclusionAcrossRestart]).is_err()); // it ends with its process
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], listing everything that fails at once.
    pub fn require(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        self.guarantees().require(wanted).map_err(|error| error.with_backend(self.backend_name()))
    }

    /// Refuses a configuration that does not keep every promise in `wanted`; a promise with a reservation
    /// ([`Support::Unless`](crate::Support::Unless)) counts as kept. A call that needs a promise, such as
    /// [`recorded`](Self::recorded) for [`Guarantee::Record`], works then.
    ///
    /// # Examples
    /// ```
    /// use lock_core::{Guarantee, Locks, MemoryLocks};
    ///
    /// let locks = Locks::from(MemoryLocks::new());
    /// locks.require_with_reservations(&[Guarantee::Record, Guarantee::Leave])?;
    /// assert!(locks.require_with_reservations(&[Guarantee::RecordAcrossRestart]).is_err());
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], listing everything that fails at once.
    pub fn require_with_reservations(&self, wanted: &[Guarantee]) -> Result<(), Error> {
        let required = self.guarantees().require_with_reservations(wanted);
        required.map_err(|error| error.with_backend(self.backend_name()))
    }

    /// Closes the client: waits for at most one operation timeout until the server has confirmed the releases and
    /// cancellations in the background. From this call on it acquires no lock; see [`Client::close`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let locks = lock_core::Locks::from(&locks);
    /// locks.close().await?;
    /// assert_eq!(locks.mutex("a").lock().await.unwrap_err().kind(), lock_core::ErrorKind::Closed);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`], with the number of releases and cancellations
    /// that were not confirmed in time.
    ///
    /// # Cancel safety
    /// The client is closed although the future was dropped.
    pub async fn close(&self) -> Result<(), Error> {
        self.core.close().await
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("backend", &self.backend_name()).finish_non_exhaustive()
    }
}
