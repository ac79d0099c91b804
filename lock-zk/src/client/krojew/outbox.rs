//! Where requests wait until the crate may be asked. It sends a request when its answer is first polled, and hangs if as
//! many wait as its own queue holds: so one task polls them all, in the order in which they came, and fewer than that at
//! once. What keeps the session and its locks goes before. The task also notices when the servers are silent, and closes the
//! session when nobody has a request any more.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use zookeeper_async::{ZkError, ZkResult, ZooKeeper};

use super::links::Links;
use super::{Answer, Fate, Fault, Manner};
use crate::access::Credentials;

/// How many requests may be under way, and how many more for what goes first. The crate's queue holds 64; it puts pings into
/// it too.
const AT_ONCE: usize = 48;
const FIRST: usize = 8;

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The way to the servers, in order. The session is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Outbox {
    first: mpsc::UnboundedSender<Request>,
    in_turn: mpsc::UnboundedSender<Request>,
    shared: Shared,
}

/// What a request and the task that sends it know.
#[derive(Debug, Clone)]
struct Shared {
    client: Arc<Shown>,
    links: Arc<Links>,
    /// The last connection on which credentials were shown; `None` without credentials.
    introduced_to: Option<Arc<AtomicU64>>,
}

/// The crate's client, which has no `Debug`.
struct Shown(Arc<ZooKeeper>);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ZooKeeper")
    }
}

impl Outbox {
    /// An outbox, and the task that sends. Servers are silent when they owe an answer for this long.
    pub(super) fn new(
        client: ZooKeeper,
        links: Arc<Links>,
        credentials: Option<Credentials>,
        silence: Duration,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (first, waiting_first) = mpsc::unbounded_channel();
        let (in_turn, waiting_in_turn) = mpsc::unbounded_channel();
        let waiting = Waiting { first: waiting_first, in_turn: waiting_in_turn };
        // No connection has this number.
        let introduced_to = credentials.is_some().then(|| Arc::new(AtomicU64::new(u64::MAX)));
        let shared = Shared { client: Arc::new(Shown(Arc::new(client))), links, introduced_to };
        let sender = Sender {
            under_way: FuturesUnordered::new(),
            shared: shared.clone(),
            credentials,
            silence,
            owed_since: Instant::now(),
        };
        (Self { first, in_turn, shared }, sender.run(waiting))
    }

    /// Hands a request in.
    pub(super) fn send<T, F>(
        &self,
        manner: Manner,
        request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static,
    ) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let shared = self.shared.clone();
        let request = async move {
            if manner != Manner::InAnyCase && answer.is_closed() {
                return;
            }
            let introduced_to = shared.introduced_to.as_ref().map(|to| to.load(Ordering::Acquire));
            let outcome = request(shared.client.0.clone()).await;
            if let Err(ZkError::MarshallingError) = outcome {
                // An answer to something else: from here on the crate takes each one for another.
                shared.links.end();
            }
            // Nobody may wait for it any more.
            let _ = answer.send(shared.links.judge(outcome.map_err(Fault::from), introduced_to));
        };
        // Without its task, which lives as long as this unless the runtime is gone, the answer is that there is none.
        let queue = if manner == Manner::First { &self.first } else { &self.in_turn };
        let _ = queue.send(Box::pin(request));
        let gone = |_| Err(Fault { fate: Fate::Ended, source: "the client is gone".into() });
        Box::pin(async move { answered.await.unwrap_or_else(gone) })
    }
}

/// Requests that were handed in, by their manner.
struct Waiting {
    first: mpsc::UnboundedReceiver<Request>,
    in_turn: mpsc::UnboundedReceiver<Request>,
}

impl Waiting {
    /// The next one that may be sent beside so many; `None` when nobody hands one in any more.
    async fn next(&mut self, under_way: usize) -> Option<Request> {
        tokio::select! {
            biased;
            Some(request) = self.first.recv(), if under_way < AT_ONCE + FIRST => Some(request),
            request = self.in_turn.recv(), if under_way < AT_ONCE => request,
            else => std::future::pending().await,
        }
    }
}

struct Sender {
    under_way: FuturesUnordered<Request>,
    shared: Shared,
    credentials: Option<Credentials>,
    silence: Duration,
    /// Since when an answer is owed, if there are requests under way.
    owed_since: Instant,
}

impl Sender {
    async fn run(mut self, mut waiting: Waiting) {
        loop {
            let under_way = self.under_way.len();
            tokio::select! {
                biased;
                () = self.answer(), if under_way > 0 => {}
                request = waiting.next(under_way) => {
                    let Some(request) = request else { break };
                    self.introduce().await;
                    self.start(request);
                }
            }
        }
        // Whatever was handed in goes before. A client that hangs never answers; then its tasks stay with it.
        let client = self.shared.client.0.clone();
        self.start(Box::pin(async move { client.close().await.unwrap_or_default() }));
        self.settle().await;
    }

    /// Shows the credentials on a connection that does not know them, and by itself: servers answer it at once, before what
    /// came earlier, and the crate would take the answer for one to that.
    async fn introduce(&mut self) {
        let Some(Credentials::Digest { user, password }) = self.credentials.clone() else { return };
        let Some(introduced_to) = self.shared.introduced_to.clone() else { return };
        let connections = self.shared.links.connections();
        if introduced_to.load(Ordering::Acquire) == connections {
            return;
        }
        self.settle().await;
        introduced_to.store(connections, Ordering::Release);
        let (client, shown) = (self.shared.client.0.clone(), format!("{user}:{password}").into_bytes());
        self.start(Box::pin(async move { client.add_auth("digest", shown).await.unwrap_or_default() }));
        self.settle().await;
    }

    /// Until nothing is under way.
    async fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.answer().await;
        }
    }

    /// One answer; or the news that it is owed for too long.
    async fn answer(&mut self) {
        let answered = tokio::time::timeout_at(self.owed_since + self.silence, self.under_way.next()).await;
        self.owed_since = Instant::now();
        self.shared.links.is_silent(answered.is_err());
    }

    fn start(&mut self, request: Request) {
        if self.under_way.is_empty() {
            self.owed_since = Instant::now();
        }
        // Polled in the order in which they are pushed.
        self.under_way.push(request);
    }
}
