//! How many requests are under way. The crate sends whatever it is asked at once, and the servers answer a session in order: a
//! beat behind thousands of requests would be answered when its session is over. So requests beyond a number wait here, in
//! the order of their calls.
//!
//! As long as there are fewer, the crate is asked at the call, and nothing else is done. Those that waited are polled by one
//! task of their own: callers that do not poll an answer that has come hold up nobody else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, future};
use tokio::sync::{mpsc, oneshot};
use zookeeper_client::{Client, Error};

use super::{Answer, Fate, Fault, Manner};

/// How many requests may be under way that did not wait, and as many that did.
const AT_ONCE: usize = 128;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to the servers.
pub(super) struct Outbox {
    client: Arc<Client>,
    waiting: mpsc::UnboundedSender<Boxed<()>>,
    /// Of those that did not wait.
    under_way: Arc<AtomicUsize>,
    /// How many wait to be sent.
    unsent: Arc<AtomicUsize>,
}

impl Outbox {
    /// An outbox, and the task that sends what had to wait. It ends with the outbox.
    pub(super) fn new(client: Client) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (waiting, requests) = mpsc::unbounded_channel();
        let unsent = Arc::<AtomicUsize>::default();
        let task = send(requests, unsent.clone());
        (Self { client: Arc::new(client), waiting, under_way: Arc::default(), unsent }, task)
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Asks the crate, now or when it is this request's turn.
    pub(super) fn send<T, F>(
        &self,
        manner: Manner,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let client = self.client.clone();
        let turn = match manner {
            Manner::First => None,
            // A caller's former request that still waits goes before.
            _ if self.unsent.load(Ordering::Acquire) > 0 => return self.wait(manner, request),
            _ => match Turn::take(&self.under_way) {
                None => return self.wait(manner, request),
                turn => turn,
            },
        };
        begun(Box::pin(async move {
            let answer = request(client).await;
            drop(turn);
            Ok(answer?)
        }))
    }

    fn wait<T, F>(&self, manner: Manner, request: impl FnOnce(Arc<Client>) -> F + Send + 'static) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let client = self.client.clone();
        let request = Box::pin(async move {
            if manner == Manner::InAnyCase || !answer.is_closed() {
                // Nobody may wait for it any more.
                let _ = answer.send(request(client).await);
            }
        });
        self.unsent.fetch_add(1, Ordering::AcqRel);
        // Without its task, which lives as long as this unless the runtime is gone, the answer is that there is none.
        let _ = self.waiting.send(request);
        let gone = |_| Err(Fault { fate: Fate::Ended, source: "the client is gone".into() });
        Box::pin(async move { answered.await.map_or_else(gone, |answer| Ok(answer?)) })
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("client", &self.client).finish_non_exhaustive()
    }
}

/// Sends what waits, in order, so that only so many are under way at once.
async fn send(mut waiting: mpsc::UnboundedReceiver<Boxed<()>>, unsent: Arc<AtomicUsize>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
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
fn begun<T: Send + 'static>(mut request: Boxed<T>) -> Boxed<T> {
    match request.as_mut().now_or_never() {
        Some(answer) => Box::pin(future::ready(answer)),
        None => request,
    }
}

/// One of the requests that may be under way, until it is dropped.
struct Turn(Arc<AtomicUsize>);

impl Turn {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let turn = (taken.fetch_add(1, Ordering::AcqRel) < AT_ONCE).then(|| Self(taken.clone()));
        if turn.is_none() {
            taken.fetch_sub(1, Ordering::AcqRel);
        }
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
