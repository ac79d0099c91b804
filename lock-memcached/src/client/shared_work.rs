//! Work that others may end: whoever waits for what it keeps, and is not told, because nobody drives it any more.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

pub(super) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that others may end: then its output is nothing.
pub(crate) struct SharedWork<T>(Arc<Mutex<Parts<T>>>);

/// The right to end a work.
pub(crate) struct WorkEnd<T>(Weak<Mutex<Parts<T>>>);

/// The work, unless it has ended, and the waker of whoever polled it last.
struct Parts<T> {
    work: Option<Work<T>>,
    waker: Option<Waker>,
}

impl<T> SharedWork<T> {
    pub(crate) fn new(work: Work<T>) -> (Self, WorkEnd<T>) {
        let parts = Arc::new(Mutex::new(Parts { work: Some(work), waker: None }));
        let end = WorkEnd(Arc::downgrade(&parts));
        (Self(parts), end)
    }
}

impl<T> Future for SharedWork<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut parts = locked(&self.0);
        let Some(going_on) = parts.work.as_mut() else { return Poll::Ready(None) };
        let Poll::Ready(output) = going_on.as_mut().poll(context) else {
            parts.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        parts.work = None;
        Poll::Ready(Some(output))
    }
}

impl<T> WorkEnd<T> {
    /// Drops the work, if it has not come to its end, and wakes whoever waits for it. Whatever it was about to do, it does not do any more.
    pub(crate) fn end(&self) {
        let Some(parts) = self.0.upgrade() else { return };
        let (left, waker) = {
            let mut parts = locked(&parts);
            (parts.work.take(), parts.waker.take())
        };
        drop(left);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> std::fmt::Debug for WorkEnd<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkEnd").finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_was_ended_is_dropped_and_says_so() {
        let (kept, mut is_kept) = oneshot::channel::<()>();
        let (mut work, end) = SharedWork::new(Box::pin(async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        }));
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx))).await;
        assert!(polled.is_pending() && is_kept.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        end.end();
        assert_eq!(is_kept.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(work.await, None);
    }

    #[tokio::test]
    async fn who_waits_for_what_was_ended_is_woken() {
        let (work, end) = SharedWork::new(Box::pin(std::future::pending::<()>()));
        let waits = tokio::spawn(work);
        tokio::task::yield_now().await;
        end.end();
        let told = tokio::time::timeout(std::time::Duration::from_secs(30), waits).await;
        assert_eq!(told.expect("nobody wakes it").unwrap(), None);
    }

    #[tokio::test]
    async fn what_has_come_to_its_end_is_not_ended() {
        let (work, end) = SharedWork::new(Box::pin(async { 7 }));
        assert_eq!(work.await, Some(7));
        end.end();
    }
}
