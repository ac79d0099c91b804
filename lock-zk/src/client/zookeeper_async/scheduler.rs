//! The order of requests, which wait here until the crate may be asked. It sends a request when its answer is first polled, and
//! hangs if as many wait as its own queue holds: so one task polls them all, in the order in which they came, and fewer than
//! that at once. What keeps the session and its locks goes before. The task also notices when the servers are silent, and
//! closes the session when nobody has a request any more, or when it is told to.
//!
//! The crate matches answers to requests by their order alone, and may get that wrong when it connects again; and it may
//! connect to a server that lags behind. So a new connection is put to the proof before anything else goes over it: a node is
//! made, alone, whose answer names its path and the session, and comes when the server knows all that was committed before.
//! Where answers turn out to be those to other requests, the servers are made to end the connection, which keeps the session.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use zookeeper_async::{Acl, CreateMode, ZkError, ZkResult, ZooKeeper};

use super::judged::Judged;
use super::link_monitor::LinkMonitor;
use super::{Failure, Fate, LONGEST_BACKLOG, Priority, RETRY};
use crate::access::Credentials;

/// The most requests under way, and how many urgent ones may be added. The crate's queue holds 64, and its pings are in it too.
const AT_ONCE: usize = 48;
const FIRST: usize = 8;

/// A scheme for credentials that no server knows. Whoever shows such ones is refused, and the servers end the connection and keep
/// the session: the one way to have the crate connect again.
const NO_SCHEME: &str = "lock-zk-connect-again";
/// The time between two of these.
const RESET_PAUSE: Duration = Duration::from_millis(500);

type RequestFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The way to the servers, in order. The session is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Scheduler {
    first: PriorityQueue,
    in_turn: PriorityQueue,
    shared: SchedulerHandle,
    closed: watch::Sender<bool>,
    unanswered: watch::Receiver<Option<BootInstant>>,
}

/// The client and its links, shared by requests and the task that sends them.
#[derive(Debug, Clone)]
struct SchedulerHandle {
    client: Arc<OpaqueClient>,
    links: Arc<LinkMonitor>,
}

/// The crate's client, which has no `Debug`.
struct OpaqueClient(Arc<ZooKeeper>);

impl std::fmt::Debug for OpaqueClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ZooKeeper")
    }
}

impl Scheduler {
    /// A scheduler, and the task that sends. Servers are silent when an answer is due for this long.
    pub(super) fn new(
        client: ZooKeeper,
        links: Arc<LinkMonitor>,
        preamble: Preamble,
        silence: Duration,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let (first, waiting_first) = PriorityQueue::new();
        let (in_turn, waiting_in_turn) = PriorityQueue::new();
        let waiting = RequestQueue { first: waiting_first, in_turn: waiting_in_turn };
        let shared = SchedulerHandle { client: Arc::new(OpaqueClient(Arc::new(client))), links };
        let (closed, closing) = watch::channel(false);
        let (unanswered, answered) = watch::channel(None);
        let sender = SchedulerTask {
            under_way: FuturesUnordered::new(),
            shared: shared.clone(),
            preamble,
            silence,
            unanswered,
            last_answer: Instant::now(),
            last_reset: None,
        };
        (Self { first, in_turn, shared, closed, unanswered: answered }, sender.run(waiting, closing))
    }

    /// Ends the session, and every request: those that were handed in are not answered.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    /// The instant since when requests are under way of which none was answered.
    pub(super) fn unanswered_since(&self) -> Option<BootInstant> {
        *self.unanswered.borrow()
    }

    /// Hands a request in. It is told over which connection it goes.
    pub(super) fn send<T, F>(
        &self,
        priority: Priority,
        request: impl FnOnce(Arc<ZooKeeper>, u64) -> F + Send + 'static,
    ) -> BoxFuture<'static, Judged<T>>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send,
    {
        let queue = if priority == Priority::Urgent { &self.first } else { &self.in_turn };
        let failed = |failure, connection| Judged { outcome: Err(failure), connection };
        let connection = self.shared.links.proven();
        if priority != Priority::Detached && queue.is_full() {
            return Box::pin(std::future::ready(failed(Failure::no_room(), connection)));
        }
        let (answer, answered) = oneshot::channel();
        let (shared, unsent) = (self.shared.clone(), queue.one_more());
        let request = async move {
            drop(unsent);
            if priority != Priority::Detached && answer.is_closed() {
                return;
            }
            let connection = shared.links.proven();
            let outcome = request(shared.client.0.clone(), connection).await;
            if let Err(ZkError::MarshallingError) = outcome {
                // An answer to something else: from here on the crate takes each one for another.
                shared.links.doubt(connection);
            }
            let outcome = shared.links.judge(outcome.map_err(Failure::from), connection);
            // Nobody may wait for it any more.
            let _ = answer.send(Judged { outcome, connection });
        };
        // Without its task, which lives as long as this unless the runtime is gone, the answer is that there is none.
        let _ = queue.waiting.send(Box::pin(request));
        let gone = move |_| failed(Failure { fate: Fate::Ended, source: "the client is gone".into() }, connection);
        Box::pin(async move { answered.await.unwrap_or_else(gone) })
    }
}

/// The requests of one priority that wait to be sent, up to [`LONGEST_BACKLOG`] and those that may not be refused.
#[derive(Debug)]
struct PriorityQueue {
    waiting: mpsc::UnboundedSender<RequestFuture>,
    unsent: Arc<AtomicUsize>,
}

impl PriorityQueue {
    fn new() -> (Self, mpsc::UnboundedReceiver<RequestFuture>) {
        let (waiting, requests) = mpsc::unbounded_channel();
        (Self { waiting, unsent: Arc::default() }, requests)
    }

    /// Whether a request that may be refused has to be.
    fn is_full(&self) -> bool {
        self.unsent.load(Ordering::Acquire) >= LONGEST_BACKLOG
    }

    /// Counts one request more, until it is sent or dropped.
    fn one_more(&self) -> Unsent {
        self.unsent.fetch_add(1, Ordering::AcqRel);
        Unsent(self.unsent.clone())
    }
}

/// One of the requests that wait, until it is dropped.
struct Unsent(Arc<AtomicUsize>);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Requests that were handed in, by their priority.
struct RequestQueue {
    first: mpsc::UnboundedReceiver<RequestFuture>,
    in_turn: mpsc::UnboundedReceiver<RequestFuture>,
}

impl RequestQueue {
    /// The next one that may be sent beside so many; `None` when nobody hands one in any more.
    async fn next(&mut self, under_way: usize) -> Option<RequestFuture> {
        tokio::select! {
            biased;
            Some(request) = self.first.recv(), if under_way < AT_ONCE + FIRST => Some(request),
            request = self.in_turn.recv(), if under_way < AT_ONCE => request,
            else => std::future::pending().await,
        }
    }
}

/// The things to say on a new connection before anything else.
pub(super) struct Preamble {
    pub(super) credentials: Option<Credentials>,
    /// The beginning of the path of a node that nobody else makes.
    pub(super) sign: String,
    /// The rights to that node.
    pub(super) access: Vec<Acl>,
}

struct SchedulerTask {
    under_way: FuturesUnordered<RequestFuture>,
    shared: SchedulerHandle,
    preamble: Preamble,
    silence: Duration,
    /// The instant since when an answer is due, if there are requests under way.
    unanswered: watch::Sender<Option<BootInstant>>,
    /// The instant of the last answer, or of the sending of the first of them.
    last_answer: Instant,
    /// The instant of the last [`reset`](Self::reset).
    last_reset: Option<Instant>,
}

impl SchedulerTask {
    async fn run(mut self, mut waiting: RequestQueue, mut closing: watch::Receiver<bool>) {
        let end = EndOfLink(self.shared.links.clone());
        let closed = async {
            if closing.wait_for(|closed| *closed).await.is_err() {
                // The scheduler was dropped: what it was given goes first.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = closed => self.under_way.clear(),
            () = self.send(&mut waiting) => {}
        }
        drop(waiting);
        let client = self.shared.client.0.clone();
        self.start(Box::pin(async move { client.close().await.unwrap_or_default() }));
        // A client that hangs never answers; then its tasks stay with it.
        self.settle().await;
        drop(end);
    }

    async fn send(&mut self, waiting: &mut RequestQueue) {
        let links = self.shared.links.clone();
        self.show_credentials();
        self.settle().await;
        loop {
            let under_way = self.under_way.len();
            tokio::select! {
                biased;
                connection = links.doubted() => self.reset(connection).await,
                _ = self.answer(), if under_way > 0 => {}
                request = waiting.next(under_way) => {
                    let Some(request) = request else { return };
                    self.introduce().await;
                    self.start(request);
                }
            }
        }
    }

    /// Has the servers end a connection on which answers are taken for others. Nothing else is sent until there is another one.
    async fn reset(&mut self, connection: u64) {
        let links = self.shared.links.clone();
        if let Some(before) = self.last_reset {
            let pause = tokio::time::sleep_until(before + RESET_PAUSE);
            self.answer_until(async {
                tokio::select! {
                    () = pause => {}
                    () = links.replaced(connection) => {}
                }
            })
            .await;
            if links.is_over() || links.connections() != connection {
                return;
            }
        }
        self.last_reset = Some(Instant::now());
        let client = self.shared.client.0.clone();
        // The answer, if there is one, is taken for another, too.
        self.start(Box::pin(async move { client.add_auth(NO_SCHEME, Vec::new()).await.unwrap_or_default() }));
        self.answer_until(links.replaced(connection)).await;
    }

    /// Puts a new connection to the proof, with nothing else under way: whatever was sent before that is not believed.
    async fn introduce(&mut self) {
        let links = self.shared.links.clone();
        loop {
            let connection = links.connections();
            if links.is_over() {
                return;
            }
            if links.is_doubted(connection) {
                self.reset(connection).await;
                continue;
            }
            if connection == links.proven() {
                return;
            }
            if !self.prove_alone(connection).await {
                // Nothing was answered for long: an answer may be missing.
                links.doubt(connection);
            }
        }
    }

    /// Puts a connection to the proof when nothing is under way any more. Returns whether that was not silent for too long.
    async fn prove_alone(&mut self, connection: u64) -> bool {
        if !self.settled().await {
            return false;
        }
        // By itself: servers answer it at once, before what came earlier, and the crate would take the answer for one to that.
        self.show_credentials();
        if !self.settled().await {
            return false;
        }
        self.prove(connection);
        self.settled().await
    }

    fn show_credentials(&mut self) {
        if let Some(Credentials::Digest { user, password }) = &self.preamble.credentials {
            let (client, shown) = (self.shared.client.0.clone(), format!("{user}:{password}").into_bytes());
            self.start(Box::pin(async move { client.add_auth("digest", shown).await.unwrap_or_default() }));
        }
    }

    /// Makes a node, and deletes it again. A refusal ends the session.
    fn prove(&mut self, connection: u64) {
        let (client, links) = (self.shared.client.0.clone(), self.shared.links.clone());
        let (path, access) = (format!("{}proof-{connection}", self.preamble.sign), self.preamble.access.clone());
        self.start(Box::pin(async move {
            match client.create2(&path, Vec::new(), access, CreateMode::Ephemeral).await {
                Ok((made, stat)) if links.is_ours(connection, made == path, stat.ephemeral_owner) => {
                    // If it fails, the node goes with the session.
                    client.delete(&path, None).await.unwrap_or_default();
                    links.set_proven(connection);
                }
                Ok(_) => {}
                Err(ZkError::MarshallingError) => links.doubt(connection),
                // Perhaps the refusal of what the servers were to end the connection for.
                Err(_) if links.is_doubted(connection) => {}
                // The connection is gone again. A crate whose own task has ended says so at once, each time.
                Err(ZkError::ConnectionLoss | ZkError::OperationTimeout) => tokio::time::sleep(RETRY).await,
                Err(_) => links.end(),
            }
        }));
    }

    /// Until nothing is under way.
    async fn settle(&mut self) {
        while !self.under_way.is_empty() {
            self.answer().await;
        }
    }

    /// Until nothing is under way, or an answer is due for too long: false then.
    async fn settled(&mut self) -> bool {
        while !self.under_way.is_empty() {
            if !self.answer().await {
                return false;
            }
        }
        true
    }

    /// Takes answers until then.
    async fn answer_until(&mut self, then: impl Future<Output = ()>) {
        let mut then = pin!(then);
        loop {
            let under_way = self.under_way.len();
            tokio::select! {
                biased;
                () = &mut then => return,
                _ = self.answer(), if under_way > 0 => {}
            }
        }
    }

    /// Takes one answer; or the news that it is due for too long: false then.
    async fn answer(&mut self) -> bool {
        let answered = tokio::time::timeout_at(self.last_answer + self.silence, self.under_way.next()).await;
        self.last_answer = Instant::now();
        self.shared.links.set_silent(answered.is_err());
        if answered.is_ok() {
            self.note_unanswered();
        }
        answered.is_ok()
    }

    fn start(&mut self, request: RequestFuture) {
        let unanswered_before = !self.under_way.is_empty();
        // Polled in the order in which they are pushed.
        self.under_way.push(request);
        if !unanswered_before {
            self.last_answer = Instant::now();
            self.note_unanswered();
        }
    }

    /// Notes that from now on an answer is due, if anything is under way.
    fn note_unanswered(&self) {
        self.unanswered.send_replace((!self.under_way.is_empty()).then(|| SystemClock.now()));
    }
}

/// The end of the task, also by a panic: without it nothing is sent any more, and the session is over.
struct EndOfLink(Arc<LinkMonitor>);

impl Drop for EndOfLink {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_until_what_waits_is_sent_or_dropped() {
        let (queue, _requests) = PriorityQueue::new();
        let mut waiting = Vec::new();
        for _ in 0..LONGEST_BACKLOG {
            assert!(!queue.is_full());
            waiting.push(queue.one_more());
        }
        assert!(queue.is_full());
        waiting.pop();
        assert!(!queue.is_full());
    }
}
