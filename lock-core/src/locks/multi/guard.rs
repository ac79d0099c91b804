//! The guard of several locks.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;

use super::all_held::AllHeld;
use super::lost_one::LostOne;
use super::one_guard::OneGuard;
#[cfg(doc)]
use crate::ErrorKind;
use crate::error::{Error, Phase};
use crate::lease::{WorkError, drop_when};
use crate::name::LockName;
use crate::token::FencingToken;

/// Holds several locks.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let Some(both) = lock_core::multi::try_lock_all([locks.mutex("from"), locks.mutex("to")]).await? else {
///     return Ok(()); // somebody holds one of them
/// };
/// let moved = both.while_held(async { 42 }).await?; // dropped when one of them is lost
/// assert_eq!(moved, 42);
/// both.release().await
/// # }
/// ```
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiGuard(Vec<OneGuard>);

impl MultiGuard {
    /// The guards, in the order of the names.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// assert_eq!(both.guards()[0].name().as_str(), "from");
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn guards(&self) -> &[OneGuard] {
        &self.0
    }

    /// The guards by themselves, in the order of the names: for locks that are not released together.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// for guard in both.into_guards() {
    ///     guard.release().await?; // each by itself
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use = "the locks are released as soon as the guards are dropped"]
    pub fn into_guards(self) -> Vec<OneGuard> {
        self.0
    }

    /// The tokens to present to the resources, in the order of the names, where the configuration has them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// for (name, token) in both.fencing_tokens() {
    ///     println!("{}: {token:?}", name.as_str()); // present it to the resource of this name
    /// }
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn fencing_tokens(&self) -> impl Iterator<Item = (&LockName, Option<FencingToken>)> {
        self.0.iter().map(|guard| (guard.name(), guard.fencing_token()))
    }

    /// Whether every one of them is held at this instant.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.iter().all(|guard| guard.is_held())
    }

    /// Returns the time for which all of them are held at least: the rest of the lease that ends first.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(|guard| guard.remaining()).min().unwrap_or_default()
    }

    /// Resolves when the first of them is lost, with its name and the reason; never after a normal release. Otherwise as
    /// [`Lease::lost`](crate::Lease::lost).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// let from = &both.guards()[0];
    /// locks.mutex("from").force_release(from.grant_id(), "its machine hangs").await?;
    /// let (name, _reason) = both.lost().await;
    /// assert_eq!(name.as_str(), "from");
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn lost(&self) -> LostOne {
        LostOne::of(self.0.iter().map(|guard| (guard.name().clone(), guard.lost())))
    }

    /// Runs `work`, and drops it at its next await point when one of them is lost. Otherwise as
    /// [`Lease::while_held`](crate::Lease::while_held).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// let moved = both.while_held(async { 42 }).await?;
    /// assert_eq!(moved, 42);
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], with the name of the lock and the reason and, if `work` had ended by then, its value.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; the guard is not touched.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, WorkError<T>> {
        let lost = async {
            let (name, reason) = self.lost().await;
            let error = Error::lost(Phase::Hold, reason).with_name(&name);
            match self.0.first() {
                Some(guard) => guard.named(error),
                None => error,
            }
        };
        let mut held = AllHeld::of(&self.0);
        drop_when(lost, || held.check(Phase::Hold), work).await
    }

    /// Releases all of them, within one operation timeout, whatever the outcome of each.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let both = lock_core::multi::lock_all([locks.mutex("from"), locks.mutex("to")]).await?;
    /// both.release().await?;
    /// assert!(locks.mutex("from").try_lock().await?.is_some()); // each is free
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`] if no confirmation came for one of them,
    /// [`ErrorKind::NotHeld`] if one had been lost; of several the first one by name whose outcome is
    /// unknown, or else the first one.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn release(self) -> Result<(), Error> {
        let outcomes = self.release_each().await;
        // Of errors that are alike, `min_by_key` returns the first.
        outcomes.into_iter().filter_map(Result::err).min_by_key(Error::is_definite).map_or(Ok(()), Err)
    }

    /// Releases all of them, and returns the outcome of each.
    pub(super) async fn release_each(self) -> Vec<Result<(), Error>> {
        join_all(self.0.into_iter().map(OneGuard::release)).await
    }

    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    pub(super) fn push(&mut self, guard: OneGuard) {
        self.0.push(guard);
    }

    pub(super) fn check(&self, phase: Phase) -> Result<(), Error> {
        self.0.iter().try_for_each(|guard| guard.check(phase))
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.0).finish()
    }
}
