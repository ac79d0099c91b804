//! The guards of a read-write lock.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::driver::RwLockBackend;
use crate::driver::bound::bounded;
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::{Attended, Lease};
use crate::owners::{Owned, UsedGrant};
use crate::token::FencingToken;

/// The lease of a guard, and the mark of the owner who uses it.
#[derive(Debug)]
pub(super) struct Held {
    lease: Lease,
    _used: Option<Arc<Owned<UsedGrant>>>,
}

impl Held {
    pub(super) fn new(lease: Lease, used: Option<Arc<Owned<UsedGrant>>>) -> Self {
        if let Some(used) = &used {
            // Set once, by the request that made the use.
            let _ = used.set(Arc::downgrade(&lease.live));
        }
        Self { lease, _used: used }
    }
}

/// A shared grant of a [`RwLock`](super::RwLock). Everything a holder can ask is on [`Lease`], to which it dereferences.
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
#[doc(alias = "RwLockReadGuard")]
#[doc(alias = "OwnedRwLockReadGuard")]
pub struct ReadGuard(pub(super) Held);

impl ReadGuard {
    /// The token to present to the resource's shared register, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.lease.live.token()
    }

    /// Releases the shared grant and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let read = config.read().await?;
    /// read.release().await?;
    /// assert!(config.try_write().await?.is_some()); // it is free
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock had been lost; [`ErrorKind::Indeterminate`] if no confirmation came: the
    /// client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
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

/// The exclusive grant of a [`RwLock`](super::RwLock). Everything a holder can ask is on [`Lease`], to which it dereferences.
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
#[doc(alias = "RwLockWriteGuard")]
#[doc(alias = "OwnedRwLockWriteGuard")]
pub struct WriteGuard {
    pub(super) held: Held,
    pub(super) backend: Arc<dyn RwLockBackend>,
}

impl WriteGuard {
    /// The token to present to the resource's exclusive register, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.lease.live.token()
    }

    /// Turns the exclusive grant into a shared one, without a gap in which a waiting writer could enter. The token
    /// stays. Readers at the front of the queue are let in.
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
    /// Dropping the future drops the guard: the lock is released in the background. One that is kept without being polled (in a `select!`
    /// loop, say) keeps the lock for up to one TTL, or to the end of an [extension](Lease::extend) that is longer.
    pub async fn downgrade(self) -> Result<ReadGuard, DowngradeError> {
        let (live, sent_at) = (self.held.lease.live.clone(), self.held.lease.keeper.clock.now());
        if let Err(error) = self.check(Phase::Downgrade)
            && !live.is_doubtful()
        {
            return Err(DowngradeError { guard: self, error });
        }
        let asked = self.backend.downgrade(&live.attempt);
        let clock = &*self.held.lease.keeper.clock;
        let asked = bounded(clock, live.attempt.op_timeout, Phase::Downgrade, asked);
        match Attended::of(&self.held.lease).during(asked).await {
            Ok(()) => {
                live.set_doubtful(false);
                // The answer may have come after the end of the lease.
                match self.check(Phase::Downgrade) {
                    Ok(()) => Ok(ReadGuard(self.held)),
                    Err(error) => Err(DowngradeError { guard: self, error }),
                }
            }
            Err(mut error) => {
                if !error.is_definite() {
                    live.set_doubtful(true);
                } else if error.kind() == ErrorKind::NotHeld {
                    self.held.lease.mark_gone(sent_at, error.loss());
                    error = error.with_loss(live.loss());
                }
                let error = self.named(error);
                Err(DowngradeError { guard: self, error })
            }
        }
    }

    /// Releases the exclusive grant and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let config = locks.rwlock("config");
    /// let write = config.write().await?;
    /// write.release().await?;
    /// assert!(config.try_read().await?.is_some()); // it is free
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the lock had been lost; [`ErrorKind::Indeterminate`] if no confirmation came: the
    /// client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
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
#[non_exhaustive]
pub struct DowngradeError<G = WriteGuard> {
    /// The write guard. After an error that is not definite it is in doubt, and does not count as held.
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
