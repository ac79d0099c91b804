//! Requests that wait until fewer are under way. One task polls those of them that were sent: callers that do not poll an answer
//! that has come hold up nobody else.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, future};
use tokio::sync::{mpsc, watch};

use super::LONGEST_BACKLOG;

/// The number of requests that may be under way without having waited, and of as many that did.
pub(super) const AT_ONCE: usize = 128;

type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that wait, in the order of their calls.
pub(super) struct Backlog {
    waiting: mpsc::UnboundedSender<RequestFuture>,
    /// The number of requests that wait.
    unsent: Arc<AtomicUsize>,
    closed: watch::Sender<bool>,
}

impl Backlog {
    /// Returns a backlog that counts here how many wait, and the task that sends them. It ends with the backlog.
    pub(super) fn new(unsent: Arc<AtomicUsize>) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (waiting, requests) = mpsc::unbounded_channel();
        let (closed, closing) = watch::channel(false);
        let task = send(requests, unsent.clone(), closing);
        (Self { waiting, unsent, closed }, task)
    }

    /// Whether a request that may be refused has to be.
    pub(super) fn is_full(&self) -> bool {
        self.unsent.load(Ordering::Acquire) >= LONGEST_BACKLOG
    }

    /// Hands a request in.
    pub(super) fn push(&self, request: RequestFuture) {
        self.unsent.fetch_add(1, Ordering::AcqRel);
        // Without its task, which lives until this is closed unless the runtime is gone, the answer is that there is none.
        let _ = self.waiting.send(request);
    }

    /// Ends the task. What still waits is not sent.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }
}

/// Sends what waits, in order, so that only so many are under way at once. What is left when the backlog is closed goes unsent.
async fn send(
    mut waiting: mpsc::UnboundedReceiver<RequestFuture>,
    unsent: Arc<AtomicUsize>,
    mut closing: watch::Receiver<bool>,
) {
    let mut under_way = FuturesUnordered::new();
    let closed = async {
        if closing.wait_for(|closed| *closed).await.is_err() {
            // The backlog was dropped: what it was given goes first.
            future::pending::<()>().await;
        }
    };
    tokio::pin!(closed);
    loop {
        tokio::select! {
            biased;
            () = &mut closed => return,
            Some(()) = under_way.next() => {}
            request = waiting.recv(), if under_way.len() < AT_ONCE => {
                let Some(request) = request else { break };
                under_way.push(begun(request));
                unsent.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
    while under_way.next().await.is_some() {}
}

/// Polls a request once, at which the crate is asked.
fn begun(mut request: RequestFuture) -> RequestFuture {
    match request.as_mut().now_or_never() {
        Some(()) => Box::pin(future::ready(())),
        None => request,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_full_until_what_waits_is_sent() {
        let (backlog, task) = Backlog::new(Arc::default());
        for _ in 0..LONGEST_BACKLOG {
            assert!(!backlog.is_full());
            backlog.push(Box::pin(future::ready(())));
        }
        assert!(backlog.is_full());
        let _ = task.now_or_never();
        assert!(!backlog.is_full());
    }
}
