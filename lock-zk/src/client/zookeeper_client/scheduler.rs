//! The requests of one connection: how many are under way, and which go together.
//!
//! The crate sends whatever it is asked at once, and the servers answer a session in order: a heartbeat behind thousands of
//! requests would be answered when its session is over. As long as there are few, the crate is asked at the call, and nothing
//! else is done. Requests beyond a number wait in the [`backlog`], in the order of their calls.
//!
//! Requests that can [go together](super::batch) go at the call only if nothing else is under way. Otherwise they wait for the end of
//! this turn of the runtime, and go with what has been asked for until then: never for an answer, nor for a batch to be full.
//!
//! One lock is held while the crate is asked, and while a request enters the backlog: so what somebody asks for travels behind what
//! he asked for before, and whoever has dropped a call that was not sent yet knows that it never will be.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use futures_util::future;
use tokio::sync::{Notify, oneshot, watch};
use zookeeper_client::{Client, Error};

use super::asks::{self, Append, Delete, List, Place};
use super::backlog;
use super::dispatch::{Dispatch, InFlight, Stamp, Way};
use super::pending::{PendingRequests, over};
use super::waiting::Waiting;
use super::{Created, Failure, LONGEST_BACKLOG, Priority, Response};

/// The way to the servers.
pub(super) struct Scheduler {
    shared: Arc<Dispatch>,
    closed: watch::Sender<bool>,
}

impl Scheduler {
    /// Returns a scheduler whose transactions change this directory, and the task that sends what had to wait. It ends with the
    /// scheduler.
    pub(super) fn new(client: Client, stamp: String) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(Dispatch {
            way: Mutex::new(Way { client: Some(Arc::new(client)), waiting: VecDeque::new() }),
            pending: Arc::default(),
            under_way: Arc::default(),
            waited: AtomicUsize::new(0),
            entered: Notify::new(),
            stamp: Stamp::of(stamp),
            listings: Arc::default(),
        });
        let (closed, closing) = watch::channel(false);
        let task = backlog::run(shared.clone(), closing);
        (Self { shared, closed }, task)
    }

    /// The table of what is under way.
    pub(super) fn pending(&self) -> &Arc<PendingRequests> {
        &self.shared.pending
    }

    /// Returns a note that a directory was made, to be taken when it was.
    pub(super) fn directory_made(&self) -> impl FnOnce() + Send + use<> {
        let shared = self.shared.clone();
        move || shared.stamp.try_again()
    }

    /// Drops the crate's client, whoever still waits for an answer: it ends its session if it can.
    pub(super) fn close(&self) {
        self.closed.send_replace(true);
        self.shared.close();
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
        let mut way = self.shared.way();
        let Some(client) = way.client.clone() else { return failed(over()) };
        let turn = match priority {
            Priority::Urgent => None,
            // A caller's former request that still waits goes before.
            _ if !way.waiting.is_empty() => return self.wait(&mut way, client, priority, request),
            _ => match InFlight::take(&self.shared.under_way) {
                None => return self.wait(&mut way, client, priority, request),
                turn => turn,
            },
        };
        self.shared.ask(turn, async move { request(client).await })
    }

    /// Asks the crate in its turn, and lists a directory right behind that.
    pub(super) fn send_and_list<T, F>(
        &self,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
        directory: &str,
    ) -> (Response<'static, T>, Response<'static, Vec<String>>)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        let way = self.shared.way();
        if let Some(client) = way.client.clone()
            && self.shared.is_idle(&way)
        {
            let [asked, listed] = [(); 2].map(|()| Some(InFlight::new(&self.shared.under_way)));
            let list = asks::list(client.clone(), self.shared.listings.clone(), directory.into());
            let asked = self.shared.ask(asked, async move { request(client).await });
            return (asked, self.shared.ask(listed, list));
        }
        drop(way);
        (self.send(Priority::Normal, request), self.list(directory))
    }

    /// Puts a request into the backlog.
    fn wait<T, F>(
        &self,
        way: &mut Way,
        client: Arc<Client>,
        priority: Priority,
        request: impl FnOnce(Arc<Client>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send,
    {
        if priority == Priority::Normal && way.waiting.len() >= LONGEST_BACKLOG {
            return failed(Failure::no_room());
        }
        let (answer, answered) = oneshot::channel();
        let pending = self.shared.pending.clone();
        let request = Box::pin(async move {
            if priority == Priority::Detached || !answer.is_closed() {
                let asked = pending.track(Box::pin(async move { Ok(request(client).await?) }));
                // Nobody may wait for it any more.
                let _ = answer.send(asked.await);
            }
        });
        self.enter(way, Waiting::Other(request));
        answer_of(answered)
    }

    /// Makes a place in a queue, and lists the queue right behind it.
    pub(super) fn append(&self, place: Place) -> (Response<'static, Created>, Response<'static, Vec<String>>) {
        let (mut way, place) = (self.shared.way(), Arc::new(place));
        let Some(client) = way.client.clone() else { return (failed(over()), failed(over())) };
        if self.shared.is_idle(&way) {
            let [created, listed] = [(); 2].map(|()| Some(InFlight::new(&self.shared.under_way)));
            let directory = place.directory.as_str().into();
            let created = self.shared.ask(created, asks::create(client.clone(), place));
            return (created, self.shared.ask(listed, asks::list(client, self.shared.listings.clone(), directory)));
        }
        if way.waiting.len() >= LONGEST_BACKLOG {
            return (failed(Failure::no_room()), failed(Failure::no_room()));
        }
        let ((created, is_created), (listed, is_listed)) = (oneshot::channel(), oneshot::channel());
        self.enter(&mut way, Waiting::Append(Append { place, created, listed: Some(listed) }));
        (answer_of(is_created), answer_of(is_listed))
    }

    /// Makes a place in a queue.
    pub(super) fn enqueue(&self, place: Place) -> Response<'static, Created> {
        let (mut way, place) = (self.shared.way(), Arc::new(place));
        let Some(client) = way.client.clone() else { return failed(over()) };
        if self.shared.is_idle(&way) {
            return self.shared.ask(Some(InFlight::new(&self.shared.under_way)), asks::create(client, place));
        }
        if way.waiting.len() >= LONGEST_BACKLOG {
            return failed(Failure::no_room());
        }
        let (created, is_created) = oneshot::channel();
        self.enter(&mut way, Waiting::Append(Append { place, created, listed: None }));
        answer_of(is_created)
    }

    /// Deletes a node, whether somebody waits for the answer or not.
    pub(super) fn delete(&self, path: &str) -> Response<'static, bool> {
        let (mut way, path) = (self.shared.way(), Arc::from(path));
        let Some(client) = way.client.clone() else { return failed(over()) };
        if self.shared.is_idle(&way) {
            return self.shared.ask(Some(InFlight::new(&self.shared.under_way)), asks::delete(client, path));
        }
        let (answer, answered) = oneshot::channel();
        self.enter(&mut way, Waiting::Delete(Delete { path, answer }));
        answer_of(answered)
    }

    /// Lists a directory.
    pub(super) fn list(&self, path: &str) -> Response<'static, Vec<String>> {
        let (mut way, path) = (self.shared.way(), Arc::from(path));
        let Some(client) = way.client.clone() else { return failed(over()) };
        if self.shared.is_idle(&way) {
            return self.shared.ask(
                Some(InFlight::new(&self.shared.under_way)),
                asks::list(client, self.shared.listings.clone(), path),
            );
        }
        if way.waiting.len() >= LONGEST_BACKLOG {
            return failed(Failure::no_room());
        }
        let (answer, answered) = oneshot::channel();
        self.enter(&mut way, Waiting::List(List { path, answer }));
        answer_of(answered)
    }

    /// Puts a request into the backlog.
    fn enter(&self, way: &mut Way, request: Waiting) {
        way.waiting.push_back(request);
        self.shared.entered.notify_one();
    }
}

fn failed<T: Send + 'static>(failure: Failure) -> Response<'static, T> {
    Box::pin(future::ready(Err(failure)))
}

/// Returns the answer that comes by this channel. Only the end of the session leaves it without one.
fn answer_of<T: Send + 'static>(answered: oneshot::Receiver<Result<T, Failure>>) -> Response<'static, T> {
    Box::pin(async move { answered.await.unwrap_or_else(|_| Err(over())) })
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("closed", &self.shared.way().client.is_none()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use super::super::connect;
    use super::super::dispatch::AT_ONCE;
    use super::*;
    use crate::client::{ClientCrate, Fate};
    use crate::config::ZkConfig;

    fn fate<T>(answer: Option<Result<T, Failure>>) -> Option<Fate> {
        answer.and_then(Result::err).map(|failure| failure.fate)
    }

    #[tokio::test]
    async fn a_request_for_which_there_is_no_room_is_unknown_at_once_and_a_deletion_waits() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let options = ZkConfig::new(server.url()).check(ClientCrate::ZookeeperClient).unwrap();
        // Nothing that waits is sent.
        let (scheduler, _not_sending) =
            Scheduler::new(connect::open(&options.connect).await.unwrap(), "/lock".to_owned());
        let ask = |priority| scheduler.send(priority, |_| future::pending::<Result<u32, Error>>());
        let mut asked: Vec<_> = (0..AT_ONCE + LONGEST_BACKLOG).map(|_| ask(Priority::Normal)).collect();
        assert!(asked.iter_mut().all(|asked| asked.now_or_never().is_none()));
        assert_eq!(fate(ask(Priority::Normal).now_or_never()), Some(Fate::Unknown));
        assert_eq!(fate(ask(Priority::Detached).now_or_never()), None);
        assert_eq!(fate(ask(Priority::Urgent).now_or_never()), None);
    }
}
