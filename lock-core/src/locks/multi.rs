//! Several mutexes at once: all or nothing, in one order everywhere, so that two callers never wait for each other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;

use crate::acquire::CANCEL_GRACE;
use crate::clock::Deadline;
use crate::error::{Error, Phase};
use crate::lease::{LossReason, Lost, drop_when};
use crate::locks::{Mutex, MutexGuard};
use crate::name::LockName;
use crate::token::FencingToken;

/// Locks all of these, waiting as long as it takes.
///
/// They are taken one after the other in the order of their names, whatever the order of the arguments. They may come
/// from one client only, as names of different clients have no common order.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let both = lock_core::multi::lock_all([locks.mutex("to"), locks.mutex("from")]).await?;
/// assert_eq!(both.guards()[0].name().as_str(), "from");
/// both.release().await
/// # }
/// ```
///
/// # Errors
/// Those of [`Mutex::lock`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is none, if a name
/// comes twice, or if they come from different clients; [`ErrorKind::Lost`](crate::ErrorKind::Lost) if one was lost while
/// the others were waited for. What was taken is given back.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn lock_all(mutexes: impl IntoIterator<Item = Mutex>) -> Result<MultiGuard, Error> {
    let mut taken = MultiGuard(Vec::new());
    for mutex in sorted(mutexes)? {
        let guard = taken.while_held(mutex.lock()).await??;
        taken.0.push(guard);
    }
    taken.check(Phase::Acquire)?;
    Ok(taken)
}

/// Locks all of these without waiting; `Ok(None)` and none of them if one is held.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
/// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the server does not answer, and the others of
/// [`lock_all`]. What was taken is given back.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn try_lock_all(mutexes: impl IntoIterator<Item = Mutex>) -> Result<Option<MultiGuard>, Error> {
    try_lock_all_for(mutexes, Duration::ZERO).await
}

/// Waits for all of these for at most this long in all; `Ok(None)` and none of them if one is still held then.
///
/// # Errors
/// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) or
/// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if the server does not answer, and the others of
/// [`lock_all`]. What was taken is given back.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn try_lock_all_for(
    mutexes: impl IntoIterator<Item = Mutex>,
    wait: Duration,
) -> Result<Option<MultiGuard>, Error> {
    let mutexes = sorted(mutexes)?;
    let Some(first) = mutexes.first() else { return Ok(None) };
    let clock = first.clock();
    let deadline = Deadline::after(clock.now(), wait);
    let mut taken = MultiGuard(Vec::new());
    for mutex in &mutexes {
        let left = if deadline.is_never() { Duration::MAX } else { deadline.left(clock.now()) };
        let tried = taken.while_held(mutex.try_lock_for(left)).await??;
        let Some(guard) = tried else {
            // Nobody's next try is to meet what this one had; what is not confirmed in time goes on in the background.
            let grace = clock.sleep_until(clock.now().plus(CANCEL_GRACE));
            tokio::select! {
                biased;
                _ = taken.release() => {}
                () = grace => {}
            }
            return Ok(None);
        };
        taken.0.push(guard);
    }
    taken.check(Phase::Acquire)?;
    Ok(Some(taken))
}

fn sorted(mutexes: impl IntoIterator<Item = Mutex>) -> Result<Vec<Mutex>, Error> {
    let mut mutexes: Vec<_> = mutexes.into_iter().collect();
    mutexes.sort_by(|a, b| a.name().cmp(b.name()));
    if mutexes.is_empty() {
        return Err(Error::invalid(Phase::Configure, "no lock was named"));
    }
    for pair in mutexes.windows(2) {
        if pair[0].name() == pair[1].name() {
            let what = "a lock is named twice: the second would wait for the first for ever";
            return Err(Error::invalid(Phase::Configure, what).with_name(pair[0].name()));
        }
        if !pair[0].same_client(&pair[1]) {
            let what = "the locks come from different clients, which have no common order";
            return Err(Error::invalid(Phase::Configure, what).with_name(pair[1].name()));
        }
    }
    Ok(mutexes)
}

/// Holds several mutexes.
///
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
pub struct MultiGuard(Vec<MutexGuard>);

impl MultiGuard {
    /// The guards, in the order of the names.
    pub fn guards(&self) -> &[MutexGuard] {
        &self.0
    }

    /// The tokens to present to the resources, in the order of the names, where the configuration has them.
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
    /// # Cancel safety
    /// Dropping it has no effect.
    pub fn lost(&self) -> LostOne {
        LostOne(self.0.iter().map(|guard| (guard.name().clone(), guard.lost())).collect())
    }

    /// Runs `work`, and drops it at its next await point when one of them is lost. Otherwise as
    /// [`Lease::while_held`](crate::Lease::while_held).
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost), with the name of the lock and the reason.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; the guard is not touched.
    pub async fn while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let lost = async {
            let (name, reason) = self.lost().await;
            let error = Error::lost(Phase::Hold, reason).with_name(&name);
            match self.0.first() {
                Some(guard) => guard.named(error),
                None => error,
            }
        };
        drop_when(lost, || self.check(Phase::Hold), work).await
    }

    /// Gives all of them back, within one operation timeout, whatever the outcome of each.
    ///
    /// # Errors
    /// The first one by name: [`ErrorKind::NotHeld`](crate::ErrorKind::NotHeld) if the lock had been lost,
    /// [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) if no confirmation came.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(self) -> Result<(), Error> {
        join_all(self.0.into_iter().map(MutexGuard::release)).await.into_iter().collect()
    }

    fn check(&self, phase: Phase) -> Result<(), Error> {
        self.0.iter().try_for_each(|guard| guard.check(phase))
    }
}

/// Resolves once, with name and reason, when the first of several locks is lost. From [`MultiGuard::lost`].
#[must_use = "futures do nothing unless polled"]
#[derive(Debug)]
pub struct LostOne(Vec<(LockName, Lost)>);

impl Future for LostOne {
    type Output = (LockName, LossReason);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let lost = self.0.iter_mut().find_map(|(name, lost)| match Pin::new(lost).poll(cx) {
            Poll::Ready(reason) => Some((name.clone(), reason)),
            Poll::Pending => None,
        });
        let Some(lost) = lost else { return Poll::Pending };
        // Told once: from now on it is pending for ever.
        self.0.clear();
        Poll::Ready(lost)
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.0).finish()
    }
}
