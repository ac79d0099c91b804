//! Wake-ups that may come a little later: those of waiters that are to watch whether the first one in their queue is late.
//!
//! Each hand-over makes another waiter watch. To wake it at once, beside the next holder, brings in a second worker of the runtime each time,
//! which costs more than the hand-over itself. So these are woken together, a moment later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The time after which waiters are woken. It is short beside the time for which a first one may be late.
const LATER: Duration = Duration::from_millis(50);

/// The most waiters that are woken together: more are woken at once.
const MOST: usize = 4096;

/// The waiters of one client that are woken a little later.
#[derive(Debug, Default)]
pub(super) struct LaterWakes(Mutex<PendingWakes>);

#[derive(Debug, Default)]
struct PendingWakes {
    waiters: Vec<Arc<Notify>>,
    /// The instant at which a task wakes them, if there is one.
    due: Option<BootInstant>,
}

impl LaterWakes {
    /// Has a waiter woken a little later; at once if that may not happen, as no runtime is there or the present one stands still.
    pub(super) fn add(self: &Arc<Self>, waiter: Arc<Notify>) {
        let now = SystemClock.now();
        let mut pending = self.pending();
        pending.waiters.push(waiter);
        let is_late = pending.due.is_some_and(|due| now >= due.plus(LATER));
        if is_late || pending.waiters.len() >= MOST {
            drop(pending);
            self.wake();
        } else if pending.due.is_none() {
            let Ok(runtime) = Handle::try_current() else {
                drop(pending);
                return self.wake();
            };
            let due = now.plus(LATER);
            pending.due = Some(due);
            drop(pending);
            let wakes = self.clone();
            runtime.spawn(async move {
                SystemClock.sleep_until(due).await;
                wakes.wake();
            });
        }
    }

    /// Wakes those that were added since the last time.
    fn wake(&self) {
        let waiters = std::mem::take(&mut *self.pending()).waiters;
        waiters.iter().for_each(|waiter| waiter.notify_one());
    }

    fn pending(&self) -> MutexGuard<'_, PendingWakes> {
        // Every critical section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lock_testkit::testing::{PROMPTLY, soon};

    use super::*;

    fn waiters<const N: usize>() -> [Arc<Notify>; N] {
        [(); N].map(|()| Arc::default())
    }

    fn is_woken(waiter: &Notify) -> bool {
        waiter.notified().now_or_never().is_some()
    }

    #[tokio::test]
    async fn those_that_are_added_within_a_moment_are_woken_together() {
        let (wakes, [first, second]) = (Arc::<LaterWakes>::default(), waiters());
        wakes.add(first.clone());
        wakes.add(second.clone());
        assert!(!is_woken(&first));
        soon("a wake-up", PROMPTLY, first.notified()).await;
        assert!(is_woken(&second));
        assert!(wakes.pending().due.is_none() && wakes.pending().waiters.is_empty());
        wakes.add(first.clone());
        soon("the next wake-up", PROMPTLY, first.notified()).await;
    }

    #[test]
    fn without_a_runtime_they_are_woken_at_once() {
        let (wakes, [waiter]) = (Arc::<LaterWakes>::default(), waiters());
        wakes.add(waiter.clone());
        assert!(is_woken(&waiter));
    }

    #[test]
    fn those_of_a_runtime_that_stands_still_are_woken_with_the_next_one() {
        let (wakes, [left, next]) = (Arc::<LaterWakes>::default(), waiters());
        let stands_still = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        stands_still.block_on(async { wakes.add(left.clone()) });
        assert!(!is_woken(&left));
        std::thread::sleep(LATER * 3);
        wakes.add(next.clone());
        assert!(is_woken(&left) && is_woken(&next));
    }

    #[tokio::test]
    async fn there_are_never_more_than_so_many() {
        let (wakes, [waiter]) = (Arc::<LaterWakes>::default(), waiters());
        for _ in 0..MOST {
            wakes.add(waiter.clone());
        }
        assert!(is_woken(&waiter));
        assert!(wakes.pending().waiters.is_empty());
    }
}
