//! Several mutexes at once: all or nothing, in one order everywhere, so that two callers never wait for each other.

use std::fmt;
use std::time::Duration;

use crate::clock::Deadline;
use crate::error::{Error, Phase};
use crate::mutex::{Mutex, MutexGuard};

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
/// As [`Mutex::lock`]; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is none, if a name
/// comes twice, or if they come from different clients; [`ErrorKind::Lost`](crate::ErrorKind::Lost) if one was lost while
/// the others were waited for. What was taken is given back.
///
/// # Cancel safety
/// As [`Mutex::lock`], for every one of them.
pub async fn lock_all(mutexes: impl IntoIterator<Item = Mutex>) -> Result<MultiGuard, Error> {
    let mut guards = Vec::new();
    for mutex in sorted(mutexes)? {
        guards.push(mutex.lock().await?);
    }
    MultiGuard::of(guards)
}

/// As [`lock_all`], for at most this long in all; `Ok(None)` if one of them is still held then.
///
/// # Errors
/// As [`lock_all`].
///
/// # Cancel safety
/// As [`lock_all`].
pub async fn try_lock_all_for(
    mutexes: impl IntoIterator<Item = Mutex>,
    wait: Duration,
) -> Result<Option<MultiGuard>, Error> {
    let mutexes = sorted(mutexes)?;
    let Some(first) = mutexes.first() else { return Ok(None) };
    let clock = first.clock();
    let deadline = Deadline::after(clock.now(), wait);
    let mut guards = Vec::new();
    for mutex in &mutexes {
        let left = if deadline.is_never() { Duration::MAX } else { deadline.left(clock.now()) };
        match mutex.try_lock_for(left).await? {
            Some(guard) => guards.push(guard),
            None => return Ok(None),
        }
    }
    MultiGuard::of(guards).map(Some)
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
#[must_use = "the locks are released as soon as the guard is dropped"]
pub struct MultiGuard(Vec<MutexGuard>);

impl MultiGuard {
    /// All of them, unless one was lost while the others were waited for.
    fn of(guards: Vec<MutexGuard>) -> Result<Self, Error> {
        for guard in &guards {
            guard.check(Phase::Acquire)?;
        }
        Ok(Self(guards))
    }

    /// The guards, in the order of the names.
    pub fn guards(&self) -> &[MutexGuard] {
        &self.0
    }

    /// Whether every one of them is held at this instant.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.iter().all(|guard| guard.is_held())
    }

    /// Gives all of them back, the last one first, whatever the outcome of each.
    ///
    /// # Errors
    /// The first one that occurred; see [`MutexGuard::release`].
    ///
    /// # Cancel safety
    /// As [`MutexGuard::release`].
    pub async fn release(self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for guard in self.0.into_iter().rev() {
            outcome = outcome.and(guard.release().await);
        }
        outcome
    }
}

impl fmt::Debug for MultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MultiGuard").field(&self.0).finish()
    }
}
