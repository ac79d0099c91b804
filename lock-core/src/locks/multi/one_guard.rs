//! The guard of one of several locks.

use std::ops::Deref;

use crate::error::Error;
use crate::lease::Lease;
use crate::locks::{MutexGuard, WriteGuard};
use crate::token::FencingToken;

/// Holds one of several locks. Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::multi::{Lockable, OneGuard, lock_all};
///
/// let config = Lockable::write(&locks.rwlock("config"));
/// let mut guards = lock_all([config, locks.mutex("orders").into()]).await?.into_guards();
/// if let Some(OneGuard::Write(config)) = guards.pop().filter(|_| !guards.is_empty()) {
///     let read = config.downgrade().await?; // "orders", the other one, is held on
///     read.release().await?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
#[non_exhaustive]
pub enum OneGuard {
    /// The guard of a mutex.
    Mutex(MutexGuard),
    /// The guard of the write side of a read-write lock.
    Write(WriteGuard),
}

impl OneGuard {
    /// The token to present to the resource, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        match self {
            Self::Mutex(guard) => guard.fencing_token(),
            Self::Write(guard) => guard.fencing_token(),
        }
    }

    /// Releases the lock and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// for guard in both.into_guards() {
    ///     assert!(guard.fencing_token().is_some());
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) if the lock had been lost;
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no confirmation came: the client goes on in the background until it is
    /// confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn release(self) -> Result<(), Error> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}

impl Deref for OneGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        match self {
            Self::Mutex(guard) => guard,
            Self::Write(guard) => guard,
        }
    }
}
