//! The runtime of a client, which ends what was left on others.
//!
//! A request that is dropped halfway goes on in the background, where its time limit ends it. On a runtime that nobody drives
//! any more it would not even come to that end, and keep what others wait for: the client's own runtime ends it then.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::clock::{Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The runtime of a client.
#[derive(Debug, Clone)]
pub(super) struct HomeRuntime {
    runtime: Option<Handle>,
    /// Longer than anything takes that is driven.
    patience: Duration,
}

impl HomeRuntime {
    /// The present runtime, if there is one.
    pub(super) fn current(patience: Duration) -> Self {
        Self { runtime: Handle::try_current().ok(), patience }
    }

    /// Carries a work through in the background, on the present runtime; this one ends it if that is not driven any more.
    pub(super) fn carry_through<T: Send + 'static>(&self, work: Work<T>) {
        let Ok(here) = Handle::try_current() else { return };
        let Some(home) = self.runtime.as_ref().filter(|home| home.id() != here.id()) else {
            here.spawn(async move { drop(work.await) });
            return;
        };
        let (work, end) = SharedWork::new(work);
        let (done, is_done) = oneshot::channel::<()>();
        let patience = self.patience;
        here.spawn(async move {
            drop(work.await);
            drop(done);
        });
        home.spawn(async move {
            tokio::select! {
                biased;
                _ = is_done => {}
                () = SystemClock.sleep_until(SystemClock.now().plus(patience)) => end.end(),
            }
        });
    }
}

/// A future on the heap.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that others may end: then its output is nothing.
struct SharedWork<T>(Arc<Mutex<Parts<T>>>);

/// The right to end a work.
struct WorkEnd<T>(Weak<Mutex<Parts<T>>>);

/// The work, unless it has ended, and the waker of whoever polled it last.
struct Parts<T> {
    work: Option<Work<T>>,
    waker: Option<Waker>,
}

impl<T> SharedWork<T> {
    fn new(work: Work<T>) -> (Self, WorkEnd<T>) {
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
    fn end(&self) {
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
    use std::future::poll_fn;

    use super::*;
    use crate::client::link::DetachOnDrop;

    const PATIENCE: Duration = Duration::from_millis(50);

    /// Polls a work once, and drops it.
    async fn begin<T: Send + 'static>(mut work: DetachOnDrop<T>) {
        assert!(poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx))).await.is_pending());
    }

    #[tokio::test]
    async fn what_was_begun_is_carried_through_and_what_was_not_is_not() {
        for begun in [true, false] {
            let (go, gone) = oneshot::channel::<()>();
            let (done, is_done) = oneshot::channel();
            let work = DetachOnDrop::new(&HomeRuntime::current(PATIENCE), async move {
                let _ = gone.await;
                let _ = done.send(());
            });
            if begun {
                begin(work).await;
            } else {
                drop(work);
            }
            let _ = go.send(());
            assert_eq!(is_done.await.is_ok(), begun);
        }
    }

    #[test]
    fn what_was_left_on_another_runtime_is_carried_through_there_or_ended_by_the_client_s_own() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (own, other) = (runtime(), runtime());
        let home = own.block_on(async { HomeRuntime::current(PATIENCE) });
        for is_driven in [true, false] {
            let (go, gone) = oneshot::channel::<()>();
            let (done, mut is_done) = oneshot::channel::<()>();
            other.block_on(begin(DetachOnDrop::new(&home, async move {
                let _ = gone.await;
                let _ = done.send(());
            })));
            if is_driven {
                go.send(()).unwrap();
                assert!(other.block_on(&mut is_done).is_ok());
            } else {
                let ended = own.block_on(async { tokio::time::timeout(PATIENCE * 200, &mut is_done).await });
                assert!(ended.expect("it is kept for ever").is_err());
            }
        }
    }

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
