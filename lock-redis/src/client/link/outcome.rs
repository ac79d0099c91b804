//! The outcome of a request that goes with others: told once by whoever has its batch, and waited for by its caller.

use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// An outcome for which one task waits. It is a part of what both sides share, and costs no allocation of its own.
#[derive(Debug)]
pub(super) struct Outcome<T>(Mutex<Progress<T>>);

#[derive(Debug)]
enum Progress<T> {
    /// It is not told yet; the task that waits is woken then.
    Open(Option<Waker>),
    Told(T),
    /// It was taken, or is never told.
    Over,
}

impl<T> Outcome<T> {
    /// An outcome that is not told yet.
    pub(super) const fn open() -> Self {
        Self(Mutex::new(Progress::Open(None)))
    }

    /// Tells it. Only the first one counts.
    pub(super) fn tell(&self, outcome: T) {
        self.end(Progress::Told(outcome));
    }

    /// Sees to it that nobody waits any more: it is never told, unless it was.
    pub(super) fn give_up(&self) {
        self.end(Progress::Over);
    }

    /// Waits for it; `None` if it is never told.
    ///
    /// # Cancel safety
    /// May be dropped at any await point; an outcome that was told stays.
    pub(super) async fn told(&self) -> Option<T> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut progress = self.progress();
        if let Progress::Open(waker) = &mut *progress {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(match std::mem::replace(&mut *progress, Progress::Over) {
            Progress::Told(outcome) => Some(outcome),
            Progress::Open(_) | Progress::Over => None,
        })
    }

    fn end(&self, end: Progress<T>) {
        let mut progress = self.progress();
        let Progress::Open(waker) = &mut *progress else { return };
        let waker = waker.take();
        *progress = end;
        // Woken without the lock: it may run at once.
        drop(progress);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        // Every critical section leaves it valid after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    /// The outcome that a task is told which waits already when `end` is called; fails if it is not woken.
    async fn heard(outcome: Outcome<u8>, end: impl FnOnce(&Outcome<u8>)) -> Option<u8> {
        let outcome = Arc::new(outcome);
        let waiting = tokio::spawn({
            let outcome = outcome.clone();
            async move { outcome.told().await }
        });
        tokio::task::yield_now().await;
        end(&outcome);
        let heard = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        heard.expect("it is woken").unwrap()
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        assert_eq!(heard(Outcome::open(), |outcome| outcome.tell(7)).await, Some(7));
    }

    #[tokio::test]
    async fn whoever_waits_for_what_is_given_up_is_woken() {
        assert_eq!(heard(Outcome::open(), Outcome::give_up).await, None);
    }

    #[tokio::test]
    async fn the_task_that_waited_last_is_the_one_that_is_woken() {
        let outcome = Outcome::open();
        // By another task, which waits no more.
        assert_eq!(outcome.told().now_or_never(), None);
        assert_eq!(heard(outcome, |outcome| outcome.tell(3)).await, Some(3));
    }

    #[test]
    fn what_was_told_first_counts_and_is_taken_once() {
        let outcome = Outcome::open();
        assert_eq!(outcome.told().now_or_never(), None);
        outcome.tell(1);
        outcome.tell(2);
        outcome.give_up();
        assert_eq!(outcome.told().now_or_never(), Some(Some(1)));
        assert_eq!(outcome.told().now_or_never(), Some(None));
    }
}
