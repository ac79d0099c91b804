//! Requests that are carried through although nobody waits for them any more.
//!
//! A claim that was sent may be carried out, whatever becomes of who sent it. To know what it came to, its answer has to
//! be read: so a future that is dropped halfway goes on in the background, where its time limit ends it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A future that is carried through once it was polled.
pub(crate) struct DetachOnDrop<T: Send + 'static> {
    work: Option<Work<T>>,
    began: bool,
}

pub(crate) fn detach_on_drop<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> DetachOnDrop<T> {
    DetachOnDrop { work: Some(Box::pin(work)), began: false }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.began = true;
        // A future that is polled after its end never ends.
        let Some(work) = &mut self.work else { return Poll::Pending };
        let output = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        if let (Some(work), true, Ok(runtime)) = (self.work.take(), self.began, Handle::try_current()) {
            runtime.spawn(async move {
                work.await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_was_begun_is_carried_through_and_what_was_not_is_not() {
        for begun in [true, false] {
            let (go, gone) = oneshot::channel::<()>();
            let (done, is_done) = oneshot::channel();
            let mut work = detach_on_drop(async move {
                let _ = gone.await;
                let _ = done.send(());
            });
            if begun {
                assert!(std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut work).poll(cx))).await.is_pending());
            }
            drop(work);
            let _ = go.send(());
            assert_eq!(is_done.await.is_ok(), begun);
        }
    }
}
