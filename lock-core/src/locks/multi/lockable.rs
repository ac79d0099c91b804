//! A lock that can be one of several.

use std::sync::Arc;

use super::one_guard::OneGuard;
use crate::acquire::{AcquireRequest, Core, Wait};
use crate::error::Error;
use crate::lease::Lease;
use crate::locks::{FencedGuard, FencedMutex, FencedRwLock, Mutex, MutexGuard, RwLock};
use crate::name::LockName;
use crate::owners::{Owned, UsedGrant};

/// A lock that can be one of several: a mutex or the write side of a read-write lock, with or without the promise of a token.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::multi::{Lockable, lock_all};
///
/// let (orders, config) = (locks.mutex("orders").fenced()?, locks.rwlock("config"));
/// let both = lock_all([Lockable::from(orders), Lockable::write(&config)]).await?;
/// assert!(config.try_read().await?.is_none());
/// assert!(both.fencing_tokens().all(|(_, token)| token.is_some()));
/// both.release().await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Lockable(Side);

#[derive(Debug, Clone)]
enum Side {
    Mutex(Mutex),
    FencedMutex(FencedMutex),
    Write(RwLock),
    FencedWrite(FencedRwLock),
}

impl Lockable {
    /// The write side of a read-write lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::multi::{Lockable, lock_all};
    ///
    /// let config = locks.rwlock("config");
    /// let all = lock_all([Lockable::write(&config), locks.mutex("orders").into()]).await?;
    /// assert!(config.try_read().await?.is_none());
    /// all.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn write(lock: &RwLock) -> Self {
        Self(Side::Write(lock.clone()))
    }

    /// The write side of a read-write lock whose grants carry a fencing token.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::multi::{Lockable, lock_all};
    ///
    /// let config = locks.rwlock("config").fenced()?;
    /// let all = lock_all([Lockable::fenced_write(&config), locks.mutex("orders").into()]).await?;
    /// assert!(all.fencing_tokens().all(|(_, token)| token.is_some()));
    /// all.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fenced_write(lock: &FencedRwLock) -> Self {
        Self(Side::FencedWrite(lock.clone()))
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        match &self.0 {
            Side::Mutex(lock) => lock.name(),
            Side::FencedMutex(lock) => lock.as_unfenced().name(),
            Side::Write(lock) => lock.name(),
            Side::FencedWrite(lock) => lock.as_unfenced().name(),
        }
    }

    /// The place in the order in which locks are taken everywhere: by name and, of one name, the mutex first.
    pub(super) fn place(&self) -> (&LockName, bool) {
        (self.name(), matches!(self.0, Side::Write(_) | Side::FencedWrite(_)))
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        match &self.0 {
            Side::Mutex(lock) => lock.core(),
            Side::FencedMutex(lock) => lock.as_unfenced().core(),
            Side::Write(lock) => lock.core(),
            Side::FencedWrite(lock) => lock.as_unfenced().core(),
        }
    }

    /// Marks the explicit owner's use of the lock, if it has one.
    pub(super) fn used(&self) -> Result<Option<Arc<Owned<UsedGrant>>>, Error> {
        match &self.0 {
            Side::Mutex(_) | Side::FencedMutex(_) => Ok(None),
            Side::Write(lock) => lock.used(),
            Side::FencedWrite(lock) => lock.as_unfenced().used(),
        }
    }

    /// The request for the lock.
    pub(super) fn request(&self) -> AcquireRequest<'_> {
        match &self.0 {
            Side::Mutex(lock) => lock.request(),
            Side::FencedMutex(lock) => lock.as_unfenced().request(),
            Side::Write(lock) => lock.write_request(),
            Side::FencedWrite(lock) => lock.as_unfenced().write_request(),
        }
    }

    /// The guard of a grant of the lock.
    pub(super) fn guard(&self, lease: Lease, used: Option<Arc<Owned<UsedGrant>>>) -> Result<OneGuard, Error> {
        Ok(match &self.0 {
            Side::Mutex(_) => OneGuard::Mutex(MutexGuard::of(lease)),
            Side::FencedMutex(_) => OneGuard::Mutex(FencedGuard::of(MutexGuard::of(lease))?.into_inner()),
            Side::Write(lock) => OneGuard::Write(lock.write_guard(lease, used)),
            Side::FencedWrite(lock) => {
                OneGuard::Write(FencedGuard::of(lock.as_unfenced().write_guard(lease, used))?.into_inner())
            }
        })
    }

    /// Waits for the lock.
    pub(super) async fn lock(&self) -> Result<OneGuard, Error> {
        Ok(match &self.0 {
            Side::Mutex(lock) => OneGuard::Mutex(lock.lock().await?),
            Side::FencedMutex(lock) => OneGuard::Mutex(lock.lock().await?.into_inner()),
            Side::Write(lock) => OneGuard::Write(lock.write().await?),
            Side::FencedWrite(lock) => OneGuard::Write(lock.write().await?.into_inner()),
        })
    }

    /// Acquires the lock, waiting like this; `None` if that was in vain.
    pub(super) async fn acquire(&self, wait: Wait) -> Result<Option<OneGuard>, Error> {
        Ok(match &self.0 {
            Side::Mutex(lock) => lock.acquire(wait).await?.map(OneGuard::Mutex),
            Side::FencedMutex(lock) => {
                let guard = lock.as_unfenced().acquire(wait).await?.map(FencedGuard::of).transpose()?;
                guard.map(FencedGuard::into_inner).map(OneGuard::Mutex)
            }
            Side::Write(lock) => lock.acquire_write(wait).await?.map(OneGuard::Write),
            Side::FencedWrite(lock) => {
                let guard = lock.as_unfenced().acquire_write(wait).await?.map(FencedGuard::of).transpose()?;
                guard.map(FencedGuard::into_inner).map(OneGuard::Write)
            }
        })
    }
}

impl From<Mutex> for Lockable {
    fn from(lock: Mutex) -> Self {
        Self(Side::Mutex(lock))
    }
}

impl From<FencedMutex> for Lockable {
    fn from(lock: FencedMutex) -> Self {
        Self(Side::FencedMutex(lock))
    }
}
