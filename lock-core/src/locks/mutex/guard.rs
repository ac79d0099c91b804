//! The holder of a mutex.

use std::ops::Deref;
use std::time::Duration;

use crate::error::Error;
use crate::lease::{Lease, LeaveError, leave};
use crate::locks::{DetachError, DetachedMutex};
use crate::token::FencingToken;

/// Holds a [`Mutex`](super::Mutex). Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let guard = locks.mutex("orders/42").lock().await?;
/// assert!(guard.is_held()); // by the clock, without traffic
/// assert!(guard.fencing_token().is_some());
/// drop(guard); // released in the background; `release` also tells whether it was held to the end
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
#[doc(alias = "OwnedMutexGuard")]
pub struct MutexGuard(Lease);

impl MutexGuard {
    /// The token to present to the resource, where the configuration has them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.0.live.token()
    }

    pub(crate) fn of(lease: Lease) -> Self {
        Self(lease)
    }

    pub(crate) fn into_lease(self) -> Lease {
        self.0
    }

    /// Ends this guard without releasing the lock, so that another client, perhaps in another process, goes on with it: see
    /// [`DetachedMutex`], which can be sent. One renewal, or two if answers to the acquisition are still on their way: the lock has its whole TTL
    /// from then on, and is not renewed from here any more.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let import = locks.mutex("import/7");
    /// let detached = import.lock().await?.detach().await?; // to be sent to another process
    /// assert!(import.try_lock().await?.is_none()); // it stays taken
    /// let guard = locks.adopt(&detached).await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The guard comes back in the error: [`Unsupported`](crate::ErrorKind::Unsupported) where grants cannot be passed on
    /// ([`Guarantee::Adoption`](crate::Guarantee::Adoption), and at a key that is shared with Redisson), [`Lost`](crate::ErrorKind::Lost) if the lock is lost,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if an earlier request for this lock may still be carried out, also after two operation
    /// timeouts or half of the lease (detach it a little later), and those of [`extend`](Lease::extend).
    ///
    /// # Cancel safety
    /// The guard of a dropped call is released in the background. One that is kept without being polled (in a `select!` loop, say) keeps the
    /// lock for up to one TTL, or to the end of an [extension](Lease::extend) that is longer.
    pub async fn detach(self) -> Result<DetachedMutex, DetachError> {
        DetachedMutex::of(self).await
    }

    /// Leaves the lock behind: it stays taken for `time` from now by the server's clock, which may be sooner or later than its lease would
    /// have ended, and is free then, on memcached up to 6 s later. It is not renewed any more, and no drop, no late release and no end of this client frees it before. On
    /// ZooKeeper the client keeps the time, and the lock ends with the client's session at the latest
    /// ([`Guarantee::Leave`](crate::Guarantee::Leave)). [`inspect`](super::Mutex::inspect) lists it, under another grant id except on ZooKeeper, and
    /// [`force_release`](super::Mutex::force_release) with that id frees it. Where a reply was lost, the time may begin anew with the repetition: up to one operation timeout later.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.mutex("report");
    /// let guard = report.lock().await?;
    /// // A job of some milliseconds, which is not to run again for a minute.
    /// guard.leave(Duration::from_secs(60)).await?;
    /// assert!(report.try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The guard comes back in the error, unchanged, after:
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) where locks cannot be left ([`Guarantee::Leave`](crate::Guarantee::Leave));
    /// - [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `time` is zero or too long: more than 24 h, or than the configuration's
    ///   longest lease;
    /// - [`Lost`](crate::ErrorKind::Lost) if the lock was lost before.
    ///
    /// The guard is gone after:
    /// - [`Lost`](crate::ErrorKind::Lost) if the server says only now that it was lost: whatever it has under this name was not touched;
    /// - [`Indeterminate`](crate::ErrorKind::Indeterminate) if no confirmation came: the client goes on in the background until it is confirmed or
    ///   the time is over. Until then the lock may be free as soon as its lease has ended.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that was never polled has asked nothing: its drop releases the lock.
    pub async fn leave(self, time: Duration) -> Result<(), LeaveError<Self>> {
        leave(self.0, time).await.map_err(|failed| failed.map(Self))
    }

    /// Releases the lock and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let orders = locks.mutex("orders/42");
    /// let guard = orders.lock().await?;
    /// orders.force_release(guard.grant_id(), "its machine hangs").await?;
    /// let error = guard.release().await.unwrap_err();
    /// assert_eq!(error.kind(), lock_core::ErrorKind::NotHeld); // it was lost before
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`NotHeld`](crate::ErrorKind::NotHeld) if the lock had been lost: whatever the server has under this name was not
    ///   touched;
    /// - [`Indeterminate`](crate::ErrorKind::Indeterminate) if no confirmation came; the client goes on in the
    ///   background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }
}

impl Deref for MutexGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0
    }
}
