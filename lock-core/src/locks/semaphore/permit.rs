//! The guard of a semaphore.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::driver::SemaphoreBackend;
use crate::driver::bound::bounded;
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::token::PermitToken;

/// One or more permits of a [`Semaphore`](super::Semaphore). Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let workers = locks.semaphore("workers", 3);
/// let permits = workers.acquire_many(2).await?;
/// assert_eq!(permits.permits(), 2);
/// drop(permits); // both are released in the background
/// # Ok(()) }
/// ```
#[must_use = "the permits are released as soon as this is dropped"]
#[doc(alias = "SemaphorePermit")]
#[doc(alias = "OwnedSemaphorePermit")]
pub struct Permit {
    lease: Lease,
    permits: u32,
    backend: Arc<dyn SemaphoreBackend>,
}

impl Permit {
    pub(super) fn new(lease: Lease, permits: u32, backend: Arc<dyn SemaphoreBackend>) -> Self {
        Self { lease, permits, backend }
    }

    /// Returns the number of permits held: those granted, less those [released](Permit::release_some).
    #[must_use]
    #[doc(alias = "num_permits")]
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Identifies the grant, where the configuration has tokens. It cannot fence: see [`PermitToken`].
    #[must_use]
    pub fn token(&self) -> Option<PermitToken> {
        self.lease.live.token().map(PermitToken::of)
    }

    /// Releases `permits` of these permits and keeps the rest, which is at least one.
    ///
    /// Do not use permits once their release was asked for, whatever the answer: [`permits`](Permit::permits) counts only what
    /// certainly remains.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let mut permits = workers.acquire_many(3).await?;
    /// permits.release_some(2).await?;
    /// assert_eq!(permits.permits(), 1);
    /// permits.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`] for none, or if nothing would be left;
    /// - [`ErrorKind::Lost`], [`ErrorKind::NotHeld`] if the grant is
    ///   gone;
    /// - [`ErrorKind::Indeterminate`] if no answer came: this guard counts the smaller
    ///   number, and the client goes on in the background until the server has confirmed it or the grant has ended. Do
    ///   not call again for the same permits: that releases more of them;
    /// - after any other error nothing was released, and the guard counts what it did.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background; this guard counts the smaller number.
    pub async fn release_some(&mut self, permits: u32) -> Result<(), Error> {
        let had = self.permits;
        let keep = had.saturating_sub(permits);
        if permits == 0 || keep == 0 {
            let what = format!("{permits} of {had} permits: at least one must be released, and one kept");
            return Err(self.named(Error::invalid(Phase::Release, what)));
        }
        self.check(Phase::Release)?;
        self.permits = keep;
        let mut unconfirmed = Unconfirmed { permit: self, keep, armed: true };
        let clock = &*unconfirmed.permit.lease.keeper.clock;
        let sent_at = clock.now();
        let asked = self.backend.shrink(&self.live.attempt, keep);
        let outcome = bounded(clock, self.live.attempt.op_timeout, Phase::Release, asked).await;
        unconfirmed.armed = outcome.as_ref().is_err_and(|error| !error.is_definite());
        drop(unconfirmed);
        outcome.map_err(|mut error| {
            if error.is_definite() {
                self.permits = had;
            }
            if error.kind() == ErrorKind::NotHeld {
                self.lease.mark_gone(sent_at, error.loss());
                error = error.with_loss(self.live.loss());
            }
            self.named(error)
        })
    }

    /// Releases all permits and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let workers = locks.semaphore("workers", 3);
    /// let permits = workers.acquire_many(3).await?;
    /// permits.release().await?;
    /// assert_eq!(workers.available().await?, 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] if the permits had been lost; [`ErrorKind::Indeterminate`] if no confirmation came: the
    /// client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn release(self) -> Result<(), Error> {
        self.lease.release().await
    }
}

/// Hands to the reaper what a [`Permit::release_some`] has not been told of, by an answer that never came or because
/// its future was dropped.
struct Unconfirmed<'a> {
    permit: &'a Permit,
    keep: u32,
    armed: bool,
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        if self.armed {
            let Lease { keeper, live, .. } = &self.permit.lease;
            keeper.reaper.shrink(self.permit.backend.clone(), live.clone(), self.keep);
        }
    }
}

impl Deref for Permit {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("permits", &self.permits).field("lease", &self.lease).finish()
    }
}
