//! The requests of one connection: how many are under way, and which are sent at the call.
//!
//! The crate sends whatever it is asked at once, and the servers answer a session in order: a heartbeat behind thousands of
//! requests would be answered when its session is over. As long as there are few, the crate is asked at the call, and nothing
//! else is done. Requests beyond a number wait, in the order of their calls, until the task of [`sending`](super::sending) takes them.
//!
//! Requests that can [go together](super::waiting) go at the call only if nothing else is under way. Otherwise they wait for the end of
//! this turn of the runtime, and go with what has been asked for until then: never for an answer, nor for a batch to be full. Hand-overs,
//! and places behind a node of the own client, wait for the end of the turn in any case.
//!
//! One lock is held while the crate is asked, and while a request begins to wait: so what somebody asks for travels behind what
//! he asked for before, and whoever has dropped a call that was not sent yet knows that it never will be.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future;
use tokio::sync::{Notify, oneshot, watch};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::pending::{PendingRequests, Tracked, over};
use super::transactions::Stamp;
use super::waiting::{
    AnswerSender, Append, Delete, Exchange, HandOver, List, ListedBehind, MOST_TOGETHER, Place, Waiting,
};
use super::{Created, Failure, LONGEST_BACKLOG, Names, Priority, Response};

/// The number of requests that may be under way without having waited, and of as many that did.
const AT_ONCE: usize = 128;

/// The bytes of the names in one answer, at most, as far as they are known before; one that has more by itself comes alone.
const MOST_BYTES_LISTED: usize = 512 * 1024;

/// The bytes of a short listing, which is not noted: as many as go together are no more than may be.
const SHORT: usize = MOST_BYTES_LISTED / MOST_TOGETHER;

/// The directories that are noted, at most. Beyond that, one of them counts as short until it is listed again.
const MOST_NOTED: usize = 1024;

/// The way to the servers.
pub(super) struct Scheduler {
    dispatch: Arc<Dispatch>,
    closed: watch::Sender<bool>,
}

/// The requests of a scheduler that wait, for the task that sends them.
pub(super) struct Backlog {
    pub(super) dispatch: Arc<Dispatch>,
    /// Says that the scheduler is closed, and ends when that is gone.
    pub(super) closing: watch::Receiver<bool>,
}

impl Scheduler {
    /// Returns a scheduler whose transactions change this directory, and what waits there.
    pub(super) fn new(client: Client, stamp: String) -> (Self, Backlog) {
        let dispatch = Arc::new(Dispatch {
            way: Mutex::new(Way { client: Some(Arc::new(client)), waiting: VecDeque::new() }),
            pending: Arc::default(),
            under_way: Arc::default(),
            waited: AtomicUsize::new(0),
            entered: Notify::new(),
            stamp: Stamp::of(stamp),
            listings: Arc::default(),
        });
        let (closed, closing) = watch::channel(false);
        (Self { dispatch: dispatch.clone(), closed }, Backlog { dispatch, closing })
    }

    /// The table of what is under way.
    pub(super) fn pending(&self) -> &Arc<PendingRequests> {
        &self.dispatch.pending
    }

    /// Returns a note that a directory was made, to be taken when it was.
    pub(super) fn directory_made(&self) -> impl FnOnce() + Send + use<> {
        let dispatch = self.dispatch.clone();
        move || dispatch.stamp.try_again()
    }

    /// Drops the crate's client, whoever still waits for an answer: it ends its session if it can.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        self.dispatch.close();
    }

    /// Makes a place in a queue, and lists the queue right behind it.
    pub(super) fn append(&self, place: Place) -> (Response<'static, Created>, Response<'static, Names>) {
        let (mut way, place) = (self.dispatch.way(), Arc::new(place));
        let Some(client) = way.client.clone() else { return (failed(over()), failed(over())) };
        if self.dispatch.is_idle(&way) && place.departure.leave() {
            let [created, listed] = [(); 2].map(|()| self.dispatch.turn());
            let (directory, listings) = (place.directory.clone(), self.dispatch.listings.clone());
            let created = self.dispatch.ask(Some(created), create(client.clone(), place));
            return (created, self.dispatch.ask(Some(listed), list(client, listings, directory)));
        }
        if !way.has_room() {
            return (failed(Failure::no_room()), failed(Failure::no_room()));
        }
        let ((created, is_created), (listed, is_listed)) = (oneshot::channel(), oneshot::channel());
        self.dispatch
            .enter(&mut way, Waiting::Append(Append { place, created, listed: Some(ListedBehind::new(listed)) }));
        (answer_of(is_created), answer_of(is_listed))
    }

    /// Makes a place in a queue where somebody of this client is before. It waits for the end of the turn in any case: whoever has just
    /// released the lock, and asks for it again, goes together with the hand-over of the one who has got it.
    pub(super) fn enqueue(&self, place: Place) -> Response<'static, Created> {
        let place = Arc::new(place);
        self.submit_later(|created| Waiting::Append(Append { place, created, listed: None }))
    }

    /// Deletes a holder's nodes for the next waiter, whether somebody waits for the answer or not. It waits as [`enqueue`](Self::enqueue)
    /// does.
    pub(super) fn hand_over(&self, exchange: Exchange) -> Response<'static, ()> {
        let exchange = Arc::new(exchange);
        self.submit_later(|released| Waiting::HandOver(HandOver { exchange, released, made: None }))
    }

    /// [Hands over](Self::hand_over) by nodes that are made for the next waiter, which is told their paths.
    pub(super) fn hand_permits_over(
        &self,
        exchange: Exchange,
    ) -> (Response<'static, ()>, Response<'static, Vec<String>>) {
        let ((made, is_made), exchange) = (oneshot::channel(), Arc::new(exchange));
        let hand_over = |released| Waiting::HandOver(HandOver { exchange, released, made: Some(made) });
        (self.submit_later(hand_over), answer_of(is_made))
    }

    /// Deletes a node, whether somebody waits for the answer or not.
    pub(super) fn delete(&self, path: &str) -> Response<'static, bool> {
        let path = Arc::<str>::from(path);
        let waiting = path.clone();
        self.submit(|client| delete(client, path), |answer| Waiting::Delete(Delete { path: waiting, answer }))
    }

    /// Lists a directory.
    pub(super) fn list(&self, path: &str) -> Response<'static, Names> {
        let path = Arc::<str>::from(path);
        let waiting = path.clone();
        self.submit(
            |client| list(client, self.dispatch.listings.clone(), path),
            |answer| Waiting::List(List { path: waiting, answers: vec![answer] }),
        )
    }

    /// Asks the crate if nothing else is under way, or has the request wait for those that can go with it.
    fn submit<T, F>(
        &self,
        request: impl FnOnce(Arc<Client>) -> F,
        waiting: impl FnOnce(AnswerSender<T>) -> Waiting,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut way = self.dispatch.way();
        let Some(client) = way.client.clone() else { return failed(over()) };
        if self.dispatch.is_idle(&way) {
            return self.dispatch.ask(Some(self.dispatch.turn()), request(client));
        }
        self.enter(&mut way, waiting)
    }

    /// Has the request wait for those that can go with it.
    fn submit_later<T: Send + 'static>(
        &self,
        waiting: impl FnOnce(AnswerSender<T>) -> Waiting,
    ) -> Response<'static, T> {
        let mut way = self.dispatch.way();
        if way.client.is_none() {
            return failed(over());
        }
        self.enter(&mut way, waiting)
    }

    fn enter<T: Send + 'static>(
        &self,
        way: &mut Way,
        waiting: impl FnOnce(AnswerSender<T>) -> Waiting,
    ) -> Response<'static, T> {
        let (answer, answered) = oneshot::channel();
        let waiting = waiting(answer);
        if !way.has_room() && !matches!(waiting, Waiting::Delete(_) | Waiting::HandOver(_)) {
            return failed(Failure::no_room());
        }
        self.dispatch.enter(way, waiting);
        answer_of(answered)
    }

    /// Asks the crate, now or when it is this request's turn. It goes by itself.
    pub(super) fn send<T, F>(
        &self,
        priority: Priority,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let mut way = self.dispatch.way();
        let Some(client) = way.client.clone() else { return failed(over()) };
        let turn = match priority {
            Priority::Urgent => None,
            // A caller's former request that still waits goes before.
            _ if !way.waiting.is_empty() => return self.wait(&mut way, client, priority, request),
            _ => match self.dispatch.turn_if_free() {
                None => return self.wait(&mut way, client, priority, request),
                turn => turn,
            },
        };
        self.dispatch.ask(turn, request(client))
    }

    /// Asks the crate in its turn, and lists a directory right behind that.
    pub(super) fn send_and_list<T, F>(
        &self,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
        directory: &str,
    ) -> (Response<'static, T>, Response<'static, Names>)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let way = self.dispatch.way();
        if let Some(client) = way.client.clone()
            && self.dispatch.is_idle(&way)
        {
            let [asked, listed] = [(); 2].map(|()| self.dispatch.turn());
            let listing = list(client.clone(), self.dispatch.listings.clone(), directory.into());
            return (self.dispatch.ask(Some(asked), request(client)), self.dispatch.ask(Some(listed), listing));
        }
        drop(way);
        (self.send(Priority::Normal, request), self.list(directory))
    }

    /// Has a request wait that goes by itself.
    fn wait<T, F>(
        &self,
        way: &mut Way,
        client: Arc<Client>,
        priority: Priority,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        if priority == Priority::Normal && !way.has_room() {
            return failed(Failure::no_room());
        }
        let (answer, answered) = oneshot::channel();
        let pending = self.dispatch.pending.clone();
        let request = Box::pin(async move {
            if priority == Priority::Detached || !answer.is_closed() {
                let asked = pending.track(Box::pin(async move { Ok(request(client).await?) }));
                // Nobody may wait for it any more.
                let _ = answer.send(asked.await);
            }
        });
        self.dispatch.enter(way, Waiting::Other(request));
        answer_of(answered)
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("closed", &self.dispatch.way().client.is_none()).finish_non_exhaustive()
    }
}

fn failed<T: Send + 'static>(failure: Failure) -> Response<'static, T> {
    Box::pin(future::ready(Err(failure)))
}

/// Returns the answer that comes by this channel. Only the end of the session leaves it without one.
fn answer_of<T: Send + 'static>(answered: oneshot::Receiver<Result<T, Failure>>) -> Response<'static, T> {
    Box::pin(async move { answered.await.unwrap_or_else(|_| Err(over())) })
}

/// The things that a scheduler and the task that sends what waits have in common.
pub(super) struct Dispatch {
    way: Mutex<Way>,
    pending: Arc<PendingRequests>,
    /// The number of requests under way that did not wait.
    under_way: Arc<AtomicUsize>,
    /// The number of those that did.
    pub(super) waited: AtomicUsize,
    /// Told of every request that begins to wait.
    pub(super) entered: Notify,
    pub(super) stamp: Stamp,
    pub(super) listings: Arc<LongListings>,
}

/// The client, and what waits for it.
pub(super) struct Way {
    /// None once it is closed.
    pub(super) client: Option<Arc<Client>>,
    /// The requests that wait, in the order of their calls.
    pub(super) waiting: VecDeque<Waiting>,
}

impl Way {
    /// Whether one more request may wait that deletes nothing.
    fn has_room(&self) -> bool {
        self.waiting.len() < LONGEST_BACKLOG
    }
}

impl Dispatch {
    /// A panic elsewhere is not passed on: there is a client, or none, and what waits is whole.
    pub(super) fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the crate's client, and tells whatever waits or is under way that the session is over.
    pub(super) fn close(&self) {
        let (client, waiting) = {
            let mut way = self.way();
            (way.client.take(), std::mem::take(&mut way.waiting))
        };
        self.pending.close();
        // Outside of the lock: whoever waits is told by this.
        drop((client, waiting));
    }

    /// Whether nothing is under way but what goes before all others, so that a request has nothing to go together with.
    fn is_idle(&self, way: &Way) -> bool {
        way.waiting.is_empty()
            && self.under_way.load(Ordering::Acquire) == 0
            && self.waited.load(Ordering::Acquire) == 0
    }

    /// Counts one request that did not wait.
    fn turn(&self) -> InFlight {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        InFlight(self.under_way.clone())
    }

    /// Counts one more if that is not too many.
    fn turn_if_free(&self) -> Option<InFlight> {
        let turn = self.turn();
        (self.under_way.load(Ordering::Acquire) <= AT_ONCE).then_some(turn)
    }

    /// Asks the crate. The answer is a later one's turn.
    fn ask<T, F>(&self, turn: Option<InFlight>, request: F) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(self.pending.track(Box::pin(async move {
            let answer = request.await;
            drop(turn);
            Ok(answer?)
        })))
    }

    /// Has a request wait for its turn.
    fn enter(&self, way: &mut Way, request: Waiting) {
        way.waiting.push_back(request);
        self.entered.notify_one();
    }

    /// Asks the crate for a request that has waited.
    pub(super) fn track<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Tracked<T> {
        self.pending.track(Box::pin(async move { Ok(request.await?) }))
    }

    /// The number of requests that may follow of those that wait.
    pub(super) fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.waited.load(Ordering::Acquire))
    }

    /// Whether the first of those that wait may go.
    pub(super) fn can_send(&self) -> bool {
        let way = self.way();
        way.waiting.front().is_some_and(|first| first.turns() <= self.free() || !first.is_wanted())
    }
}

/// One of the requests that may be under way, until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Makes a place.
pub(super) async fn create(client: Arc<Client>, place: Arc<Place>) -> Result<Created, Error> {
    let options = CreateMode::EphemeralSequential.with_acls(Acls::new(&place.access));
    let (stat, sequence) = client.create(&place.stem, &place.data, &options).await?;
    Ok(Created { path: format!("{}{sequence}", place.stem), czxid: stat.czxid })
}

/// Deletes a node, and returns whether it was there.
pub(super) async fn delete(client: Arc<Client>, path: Arc<str>) -> Result<bool, Error> {
    match client.delete(&path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the names in a directory, and notes how long they are.
pub(super) async fn list(client: Arc<Client>, listings: Arc<LongListings>, path: Arc<str>) -> Result<Names, Error> {
    let names = client.list_children(&path).await?;
    listings.note(&path, &names);
    Ok(Arc::new(names))
}

/// The lengths of the last listings in bytes, as far as they were long: by these, listings go together or by themselves.
///
/// No server limits what it answers, and the crate takes a frame of any length. But it holds a frame as a whole, and so does the
/// server: 64 queues of 10,000 waiters each are 45 MB. The first listing of a directory in a session has no length that is known, and counts as
/// short.
#[derive(Debug, Default)]
pub(super) struct LongListings(Mutex<HashMap<Arc<str>, usize>>);

impl LongListings {
    /// Notes how long a listing is.
    pub(super) fn note(&self, directory: &Arc<str>, names: &[String]) {
        // Each has its length before it.
        let bytes = names.iter().map(|name| 4 + name.len()).sum();
        let mut long = self.long();
        if bytes <= SHORT {
            long.remove(directory);
            return;
        }
        if long.len() >= MOST_NOTED
            && !long.contains_key(directory)
            && let Some(any) = long.keys().next().cloned()
        {
            long.remove(&any);
        }
        long.insert(directory.clone(), bytes);
    }

    /// Divides these directories, in their order, into those that are listed by one request each time.
    pub(super) fn divide(&self, directories: Vec<Arc<str>>) -> Vec<Vec<Arc<str>>> {
        let long = self.long();
        let (mut divided, mut bytes) = (Vec::<Vec<_>>::new(), 0);
        for directory in directories {
            let more = long.get(&directory).copied().unwrap_or(SHORT);
            bytes += more;
            match divided.last_mut() {
                Some(together) if bytes <= MOST_BYTES_LISTED => together.push(directory),
                _ => {
                    divided.push(vec![directory]);
                    bytes = more;
                }
            }
        }
        divided
    }

    fn long(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        // Every critical section leaves it valid after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
