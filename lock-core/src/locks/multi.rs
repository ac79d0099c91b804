//! Several mutexes at once: all or nothing, in one order everywhere, so that two callers never wait for each other.

use std::convert::identity;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join_all;

use crate::acquire::CANCEL_GRACE;
use crate::clock::{Clock, Deadline};
use crate::error::{Error, ErrorKind, Phase};
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
/// Those of [`Mutex::lock`]; [`ErrorKind::InvalidArgument`] if there is none, if a name
/// comes twice, or if they come from different clients; [`ErrorKind::Lost`] if one was lost while
/// the others were waited for: the wait that it cuts short is undone in the background. What was taken is released first. If that is not confirmed within 100 ms, it goes on in the
/// background, and the error is [`ErrorKind::Indeterminate`] with the other one as its source.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn lock_all(mutexes: impl IntoIterator<Item = Mutex>) -> Result<MultiGuard, Error> {
    let mutexes = sorted(mutexes)?;
    let Some(clock) = mutexes.first().map(Mutex::clock) else { return Ok(MultiGuard(Vec::new())) };
    let mut taken = MultiGuard(Vec::new());
    for mutex in mutexes {
        match taken.while_held(mutex.lock()).await.and_then(identity) {
            Ok(guard) => taken.0.push(guard),
            Err(error) => return Err(taken.put_back(&*clock).await.after(error)),
        }
    }
    taken.checked(&*clock).await
}

/// Locks all of these without waiting; `Ok(None)` and none of them if one is held.
///
/// # Errors
/// [`ErrorKind::Unavailable`] or
/// [`ErrorKind::Indeterminate`] if the server does not answer, and the others of
/// [`lock_all`]. What was taken is released, as there.
///
/// # Cancel safety
/// May be dropped at any await point: nothing of any of the locks stays behind.
pub async fn try_lock_all(mutexes: impl IntoIterator<Item = Mutex>) -> Result<Option<MultiGuard>, Error> {
    try_lock_all_for(mutexes, Duration::ZERO).await
}

/// Waits for all of these for at most this long in all; `Ok(None)` and none of them if one is still held then.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_core::multi::try_lock_all_for;
///
/// let held = locks.mutex("to").lock().await?;
/// let both = [locks.mutex("from"), locks.mutex("to")];
/// assert!(try_lock_all_for(both, std::time::Duration::from_millis(10)).await?.is_none());
/// assert!(locks.mutex("from").try_lock().await?.is_some()); // what it had is free again
/// held.release().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`ErrorKind::Unavailable`] or
/// [`ErrorKind::Indeterminate`] if the server does not answer, and the others of
/// [`lock_all`]. What was taken is released, as there.
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
        match taken.while_held(mutex.try_lock_for(left)).await.and_then(identity) {
            Ok(Some(guard)) => taken.0.push(guard),
            Ok(None) => {
                // Nobody's next try is to meet what this one had.
                taken.put_back(&*clock).await;
                return Ok(None);
            }
            Err(error) => return Err(taken.put_back(&*clock).await.after(error)),
        }
    }
    taken.checked(&*clock).await.map(Some)
}

/// Whether what a failed call had taken is known to be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PutBack {
    Confirmed,
    /// The releases go on in the background.
    Unconfirmed,
}

impl PutBack {
    /// The error of the call, which took and changed nothing only if that is confirmed.
    fn after(self, error: Error) -> Error {
        if self == Self::Confirmed || !error.is_definite() {
            return error;
        }
        let what = "what was taken before may still be held: its release is not confirmed";
        let unknown = Error::indeterminate(Phase::Acquire, what);
        unknown.with_source(error)
    }
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
    /// [`ErrorKind::Lost`], with the name of the lock and the reason.
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
    /// [`ErrorKind::Indeterminate`] if no confirmation came for one of them,
    /// [`ErrorKind::NotHeld`] if one had been lost; of several the first one by name whose outcome is
    /// unknown, or else the first one.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(self) -> Result<(), Error> {
        let outcomes = join_all(self.0.into_iter().map(MutexGuard::release)).await;
        // Of errors that are alike, `min_by_key` returns the first.
        outcomes.into_iter().filter_map(Result::err).min_by_key(Error::is_definite).map_or(Ok(()), Err)
    }

    /// Releases what a failed call had taken. What is not confirmed in time goes on in the background.
    async fn put_back(self, clock: &dyn Clock) -> PutBack {
        let grace = clock.sleep_until(clock.now().plus(CANCEL_GRACE));
        tokio::select! {
            biased;
            released = self.release() => match released {
                Err(error) if error.kind() != ErrorKind::NotHeld => PutBack::Unconfirmed,
                _ => PutBack::Confirmed,
            },
            () = grace => PutBack::Unconfirmed,
        }
    }

    /// These locks, if each is held by now.
    async fn checked(self, clock: &dyn Clock) -> Result<Self, Error> {
        match self.check(Phase::Acquire) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.put_back(clock).await.after(error)),
        }
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
