//! How many requests are under way. The crate sends whatever it is asked at once, and the servers answer a session in order: a
//! heartbeat behind thousands of requests would be answered when its session is over. So requests beyond a number wait here, in
//! the order of their calls.
//!
//! As long as there are fewer, the crate is asked at the call, and nothing else is done. Those that waited are polled by one
//! task of their own: callers that do not poll an answer that has come hold up nobody else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, future};
use tokio::sync::{mpsc, oneshot, watch};
use zookeeper_client::{Client, Error};

use super::pending::{self, PendingRequests};
use super::{Priority, Response};

/// How many requests may be under way that did not wait, and as many that did.
const AT_ONCE: usize = 128;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to the servers.
pub(super) struct Scheduler {
    /// None once it is closed.
    client: Mutex<Option<Arc<Client>>>,
    requests: Arc<PendingRequests>,
    waiting: mpsc::UnboundedSender<Boxed<()>>,
    /// Of those that did not wait.
    under_way: Arc<AtomicUsize>,
    /// How many wait to be sent.
    unsent: Arc<AtomicUsize>,
    closed: watch::Sender<bool>,
}

impl Scheduler {
    /// An scheduler, and the task that sends what had to wait. It ends with the scheduler.
    pub(super) fn new(client: Client) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (waiting, requests) = mpsc::unbounded_channel();
        let unsent = Arc::<AtomicUsize>::default();
        let (closed, closing) = watch::channel(false);
        let task = send(requests, unsent.clone(), closing);
        let client = Mutex::new(Some(Arc::new(client)));
        (Self { client, requests: Arc::default(), waiting, under_way: Arc::default(), unsent, closed }, task)
    }

    /// The table of what is under way.
    pub(super) fn requests(&self) -> &Arc<PendingRequests> {
        &self.requests
    }

    /// Lets go of the crate's client, whoever still waits for an answer: it ends its session if it can.
    pub(super) fn close(&self) {
        let client = self.client().take();
        self.closed.send_replace(true);
        self.requests.close();
        drop(client);
    }

    /// Asks the crate, now or when it is this request's turn.
    pub(super) fn send<T, F>(
        &self,
        priority: Priority,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let Some(client) = self.client().clone() else { return Box::pin(future::ready(Err(pending::over()))) };
        let turn = match priority {
            Priority::Urgent => None,
            // A caller's former request that still waits goes before.
            _ if self.unsent.load(Ordering::Acquire) > 0 => return self.wait(client, priority, request),
            _ => match Turn::take(&self.under_way) {
                None => return self.wait(client, priority, request),
                turn => turn,
            },
        };
        Box::pin(self.requests.track(Box::pin(async move {
            let answer = request(client).await;
            drop(turn);
            Ok(answer?)
        })))
    }

    fn wait<T, F>(
        &self,
        client: Arc<Client>,
        priority: Priority,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let requests = self.requests.clone();
        let request = Box::pin(async move {
            if priority == Priority::Detached || !answer.is_closed() {
                let asked = requests.track(Box::pin(async move { Ok(request(client).await?) }));
                // Nobody may wait for it any more.
                let _ = answer.send(asked.await);
            }
        });
        self.unsent.fetch_add(1, Ordering::AcqRel);
        // Without its task, which lives until this is closed unless the runtime is gone, the answer is that there is none.
        let _ = self.waiting.send(request);
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(pending::over())) })
    }

    /// A panic elsewhere is not passed on: there is a client, or none.
    fn client(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("closed", &*self.closed.borrow()).finish_non_exhaustive()
    }
}

/// Sends what waits, in order, so that only so many are under way at once. What is left when the scheduler is closed goes unsent.
async fn send(
    mut waiting: mpsc::UnboundedReceiver<Boxed<()>>,
    unsent: Arc<AtomicUsize>,
    mut closing: watch::Receiver<bool>,
) {
    let mut under_way = FuturesUnordered::new();
    let closed = async {
        if closing.wait_for(|closed| *closed).await.is_err() {
            // The scheduler was dropped: what it was given goes first.
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
