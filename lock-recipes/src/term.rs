//! One term of a leader, as it can be asked by many.
//!
//! Each answer is computed from the lease and the clock at the moment of the question; channels only wake.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::{FencingToken, RecordedGuard};
use tokio::sync::watch;

/// The shortest and the longest time between two looks at a lease that cannot warn of its end: a loss is told after the longest at the
/// latest.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// One term of a leader. A clone is the same term; whoever has one can ask for its state, and only its
/// [`Leadership`](crate::Leadership) ends it.
///
/// Whether it leads is computed from the lease and the clock at each question. The answer is no a
/// [margin](crate::Election::with_margin) before the lease can end, so that no other one leads by then. That is final, once somebody has
/// been told: a renewal that comes late is for the lock, not for the term.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let election = lock_recipes::Election::new(locks.recorded("scheduler")?);
/// let gate = &lock_core::fence::FenceGate::new(); // of a resource that refuses who led before
/// let written = election
///     .run(|term| async move { term.is_leading() && gate.admit_exclusive(term.number()).is_ok() }) // for each piece of work
///     .await?;
/// assert!(written);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Term(Arc<TermLock>);

/// The lock of a term.
#[derive(Debug)]
struct TermLock {
    number: FencingToken,
    margin: Duration,
    /// Whether somebody has been told that it leads no more.
    over: AtomicBool,
    /// Taken away by whoever ends the term. Shared only with its leadership's announcements.
    guard: Mutex<Option<Arc<RecordedGuard>>>,
    /// Told when a term begins or ends.
    changes: watch::Sender<()>,
}

/// A term that may have ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct PastTerm(Weak<TermLock>);

impl Term {
    pub(crate) fn begin(guard: RecordedGuard, margin: Duration, changes: watch::Sender<()>) -> Self {
        let number = guard.fencing_token();
        Self(Arc::new(TermLock {
            number,
            margin,
            over: AtomicBool::new(false),
            guard: Mutex::new(Some(Arc::new(guard))),
            changes,
        }))
    }

    /// The number of the term, which grows with every leader: the fencing token to present to resources.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::fence::FenceGate;
    ///
    /// let gate = FenceGate::new(); // beside the resource
    /// let leadership = lock_recipes::Election::new(locks.recorded("scheduler")?).campaign().await?;
    /// assert!(gate.admit_exclusive(leadership.number()).is_ok());
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn number(&self) -> FencingToken {
        self.0.number
    }

    /// Whether it leads at this instant, and for a margin from now on at least. Once it does not, it never does again. Its lock goes on being
    /// renewed until its [`Leadership`](crate::Leadership) ends: step down or drop it, or nobody leads.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let leadership = lock_recipes::Election::new(locks.recorded("scheduler")?).campaign().await?;
    /// if leadership.is_leading() {
    ///     // Nobody else leads yet for as long as the margin.
    /// }
    /// leadership.step_down().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn is_leading(&self) -> bool {
        let over = &self.0.over;
        // Whoever is told first tells those who wait for it: their lease may be renewed before they look.
        if self.left().is_none_or(|left| left.is_zero()) && !over.swap(true, Ordering::AcqRel) {
            self.0.changes.send_replace(());
        }
        !over.load(Ordering::Acquire)
    }

    /// Resolves when it leads no more: a margin before its lease can end, when the lock is lost, or when it has stepped down.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let leadership = lock_recipes::Election::new(locks.recorded("scheduler")?).campaign().await?;
    /// let term = leadership.term().clone();
    /// let watcher = tokio::spawn(async move { term.ended().await });
    /// leadership.step_down().await?;
    /// assert!(watcher.await.is_ok()); // it leads no more
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn ended(&self) {
        let mut changes = self.0.changes.subscribe();
        while self.is_leading() {
            let warning = self.guard().as_ref().map(|guard| guard.expires_within(self.0.margin));
            let warned = async {
                match warning {
                    Some(Ok(warning)) => warning.await,
                    // The margin is more than what is left when a renewal is due: there is no warning of that.
                    Some(Err(_)) => {
                        let [shortest, longest] = LOOK_AGAIN;
                        tokio::time::sleep(self.left().unwrap_or_default().clamp(shortest, longest)).await;
                    }
                    None => {}
                }
            };
            tokio::select! {
                biased;
                () = warned => {}
                _ = changes.changed() => {}
            }
        }
    }

    pub(crate) fn past(&self) -> PastTerm {
        PastTerm(Arc::downgrade(&self.0))
    }

    /// Takes the lock away from the term, and tells.
    pub(crate) fn take(&self) -> Option<Arc<RecordedGuard>> {
        let guard = self.guard().take();
        if guard.is_some() {
            self.0.changes.send_replace(());
        }
        guard
    }

    /// The lock of the term, unless it was taken away.
    pub(crate) fn lock(&self) -> Option<Arc<RecordedGuard>> {
        self.guard().clone()
    }

    /// The time until the margin begins; `None` if the lock was released or lost.
    fn left(&self) -> Option<Duration> {
        let guard = self.guard();
        // Asked whether it is held, a lease whose runtime has ended is renewed on the present one.
        let held = guard.as_ref().filter(|guard| guard.is_held());
        held.map(|guard| guard.remaining().saturating_sub(self.0.margin))
    }

    fn guard(&self) -> MutexGuard<'_, Option<Arc<RecordedGuard>>> {
        self.0.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PastTerm {
    /// The term, if it leads now.
    pub(crate) fn leading(&self) -> Option<Term> {
        self.0.upgrade().map(Term).filter(Term::is_leading)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::memory::MemoryStore;

    use crate::Election;

    use super::*;

    /// A campaign takes several requests; what is left of the lease by then is no measure of a whole one.
    #[tokio::test]
    async fn a_slow_way_to_the_server_makes_no_margin_shorter() {
        let (ttl, margin, way) = (Duration::from_secs(9), Duration::from_secs(3), Duration::from_millis(800));
        let store = MemoryStore::new();
        store.set_delay(way, way, 0);
        let lock = store.connect().recorded("leader").unwrap().with_ttl(ttl);
        let leadership = Election::new(lock).with_margin(margin).campaign().await.unwrap();
        let kept = leadership.term().0.margin;
        assert!(kept > margin.mul_f64(0.95) && kept <= margin, "a margin of {kept:?}");
    }
}
