//! One level of a reentrant lock.

use std::ops::Deref;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Lease;
use crate::owners::{Entry, Owned};
use crate::token::FencingToken;

/// One level of a [`ReentrantMutex`](super::ReentrantMutex). Everything a holder can ask is on [`Lease`], to which it
/// dereferences; all levels share one lease.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let me = lock_core::Owner::new();
/// let tree = locks.reentrant("tree");
/// let (outer, inner) = (tree.lock(&me).await?, tree.lock(&me).await?);
/// assert_eq!((outer.depth(), outer.grant_id()), (2, inner.grant_id())); // one grant for both
/// drop((outer, inner));
/// # Ok(()) }
/// ```
#[must_use = "the level is exited as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ReentrantGuard {
    entry: Arc<Owned<Entry>>,
    /// `None` only once the level has been left.
    lease: Option<Arc<Lease>>,
}

impl ReentrantGuard {
    pub(super) fn new(entry: Arc<Owned<Entry>>, lease: Arc<Lease>) -> Self {
        Self { entry, lease: Some(lease) }
    }

    /// The token to present to the resource, where the configuration has them; the same on every level.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.live.token()
    }

    /// Returns the number of levels that the owner is inside, through this client.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.entry.depth(self.shared())
    }

    /// Exits one level. The outermost release releases the lock and reports the outcome, within one operation timeout.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let (me, you) = (lock_core::Owner::new(), lock_core::Owner::new());
    /// let tree = locks.reentrant("tree");
    /// let (outer, inner) = (tree.lock(&me).await?, tree.lock(&me).await?);
    /// outer.release().await?; // in any order: the last one counts
    /// assert!(tree.try_lock(&you).await?.is_none());
    /// inner.release().await?;
    /// assert!(tree.try_lock(&you).await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotHeld`] on every level if the lock was lost; on the outermost level also
    /// [`ErrorKind::Indeterminate`] if no confirmation came: the client goes on in the background until it is confirmed
    /// or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn release(mut self) -> Result<(), Error> {
        let held = self.check(Phase::Release).map_err(|cause| {
            let what = "the lock was lost before this level was exited";
            let reason = cause.loss().cloned();
            self.named(Error::new(ErrorKind::NotHeld, Phase::Release, what).with_loss(reason).with_source(cause))
        });
        match self.leave() {
            Some(lease) => lease.release().await,
            None => held,
        }
    }

    fn leave(&mut self) -> Option<Lease> {
        self.entry.leave(self.lease.take()?)
    }

    fn shared(&self) -> &Arc<Lease> {
        // Taken only by `leave`, which `release` and `drop` call last.
        self.lease.as_ref().expect("a guard has its lease until the level is exited")
    }
}

impl Deref for ReentrantGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.shared()
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        drop(self.leave());
    }
}
