//! The requests of one connection: how many are under way, and which have no answer yet.
//!
//! The crate sends whatever it is asked at once, and the servers answer a session in order: a heartbeat behind thousands of
//! requests would be answered when its session is over. As long as there are few, the crate is asked at the call, and nothing
//! else is done. Requests beyond a number wait in the [backlog](super::backlog), in the order of their calls.
//!
//! A request belongs to the table of what is pending, not to whoever waits for its answer: a future that nobody polls any more
//! would otherwise keep the crate's client, and with it the session, for as long as it lives.
//!
//! The servers answer the requests of one session in order. So a request without an answer, when a later one has its own, will
//! never have one on this connection: its outcome is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use zookeeper_client::{Client, Error};

use super::backlog::{AT_ONCE, Backlog};
use super::{Failure, Fate, Priority, Response};

/// The way to the servers.
pub(super) struct Scheduler {
    /// None once it is closed.
    client: Mutex<Option<Arc<Client>>>,
    pending: Arc<PendingRequests>,
    backlog: Backlog,
    /// The number of requests under way that did not wait.
    under_way: Arc<AtomicUsize>,
    /// The number of requests in the backlog.
    unsent: Arc<AtomicUsize>,
}

impl Scheduler {
    /// Returns a scheduler, and the task that sends what had to wait. It ends with the scheduler.
    pub(super) fn new(client: Client) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let unsent = Arc::<AtomicUsize>::default();
        let (backlog, task) = Backlog::new(unsent.clone());
        let client = Mutex::new(Some(Arc::new(client)));
        (Self { client, pending: Arc::default(), backlog, under_way: Arc::default(), unsent }, task)
    }

    /// The table of what is under way.
    pub(super) fn pending(&self) -> &Arc<PendingRequests> {
        &self.pending
    }

    /// Drops the crate's client, whoever still waits for an answer: it ends its session if it can.
    pub(super) fn close(&self) {
        let client = self.client().take();
        self.backlog.close();
        self.pending.close();
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
        let Some(client) = self.client().clone() else { return Box::pin(future::ready(Err(over()))) };
        let turn = match priority {
            Priority::Urgent => None,
            // A caller's former request that still waits goes before.
            _ if self.unsent.load(Ordering::Acquire) > 0 => return self.wait(client, priority, request),
            _ => match InFlight::take(&self.under_way) {
                None => return self.wait(client, priority, request),
                turn => turn,
            },
        };
        Box::pin(self.pending.track(Box::pin(async move {
            let answer = request(client).await;
            drop(turn);
            Ok(answer?)
        })))
    }

    /// Puts a request into the backlog.
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
        if priority == Priority::Normal && self.backlog.is_full() {
            return Box::pin(future::ready(Err(Failure::no_room())));
        }
        let (answer, answered) = oneshot::channel();
        let pending = self.pending.clone();
        let request = Box::pin(async move {
            if priority == Priority::Detached || !answer.is_closed() {
                let asked = pending.track(Box::pin(async move { Ok(request(client).await?) }));
                // Nobody may wait for it any more.
                let _ = answer.send(asked.await);
            }
        });
        self.backlog.push(request);
        Box::pin(async move { answered.await.unwrap_or_else(|_| Err(over())) })
    }

    /// A panic elsewhere is not passed on: there is a client, or none.
    fn client(&self) -> MutexGuard<'_, Option<Arc<Client>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("closed", &self.client().is_none()).finish_non_exhaustive()
    }
}

/// One of the requests that may be under way, until it is dropped.
struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let turn = (taken.fetch_add(1, Ordering::AcqRel) < AT_ONCE).then(|| Self(taken.clone()));
        if turn.is_none() {
            taken.fetch_sub(1, Ordering::AcqRel);
        }
        turn
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

type Boxed<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// Every request under way, in the order of their sending: as many as the scheduler lets through, and what goes first.
#[derive(Default)]
pub(super) struct PendingRequests {
    table: Mutex<PendingTable>,
}

#[derive(Default)]
struct PendingTable {
    next: u64,
    open: BTreeMap<u64, PendingRequest>,
    closed: bool,
}

struct PendingRequest {
    sent_at: BootInstant,
    request: Arc<dyn AnyRequest>,
}

/// A request, whatever it asks for.
trait AnyRequest: Send + Sync {
    /// Whether it has its answer, also if nobody has looked for it yet.
    fn is_answered(&self) -> bool;

    /// Gives it this answer, unless it has one.
    fn end(&self, failure: Failure);
}

/// One request and its answer.
struct Slot<T>(Mutex<RequestState<T>>);

enum RequestState<T> {
    Sent {
        request: Boxed<T>,
        /// The waker of the future that waits.
        waker: Waker,
    },
    Answered(Result<T, Failure>),
    Taken,
}

/// The answer to a request of the table. The request stays there until it is answered, whether somebody waits for that or not: the
/// crate has been asked, and sends it.
pub(super) struct Tracked<T: Send + 'static> {
    slot: Arc<Slot<T>>,
    number: u64,
    requests: Arc<PendingRequests>,
}

impl PendingRequests {
    /// Enters a request, and polls it once: the crate is asked then.
    pub(super) fn track<T: Send + 'static>(self: &Arc<Self>, request: Boxed<T>) -> Tracked<T> {
        let slot = Arc::new(Slot(Mutex::new(RequestState::Sent { request, waker: Waker::noop().clone() })));
        let mut table = self.table();
        let number = table.next;
        table.next += 1;
        let tracked = Tracked { slot: slot.clone(), number, requests: self.clone() };
        if table.closed {
            slot.end(over());
        } else if !slot.is_answered() {
            table.open.insert(number, PendingRequest { sent_at: SystemClock.now(), request: slot });
        }
        tracked
    }

    /// The number of the next request: a heartbeat that is sent now comes behind all with lower ones.
    pub(super) fn mark(&self) -> u64 {
        self.table().next
    }

    /// A request that was sent behind all below this number has been answered.
    pub(super) fn answered_behind(&self, mark: u64) {
        let mut table = self.table();
        let later = table.open.split_off(&mark);
        let before = mem::replace(&mut table.open, later);
        drop(table);
        for PendingRequest { request, .. } in before.into_values() {
            if !request.is_answered() {
                tracing::warn!("a request has no answer, though a later one has: its answer was lost");
                request.end(Failure {
                    fate: Fate::Unknown,
                    source: "a later request was answered, this one was not".into(),
                });
            }
        }
    }

    /// Returns when the oldest request was sent that has no answer.
    pub(super) fn unanswered_since(&self) -> Option<BootInstant> {
        loop {
            let (number, sent_at, request) = self.oldest()?;
            if !request.is_answered() {
                return Some(sent_at);
            }
            self.table().open.remove(&number);
        }
    }

    fn oldest(&self) -> Option<(u64, BootInstant, Arc<dyn AnyRequest>)> {
        let table = self.table();
        let (number, open) = table.open.first_key_value()?;
        Some((*number, open.sent_at, open.request.clone()))
    }

    /// Ends every request, and every one that is entered from now on.
    pub(super) fn close(&self) {
        let mut table = self.table();
        table.closed = true;
        let open = mem::take(&mut table.open);
        drop(table);
        for open in open.into_values() {
            open.request.end(over());
        }
    }

    /// Forgets a request, whatever became of it.
    fn forget(&self, number: u64) {
        let open = self.table().open.remove(&number);
        // Outside of the table: a request that is dropped may have something to say to the crate.
        drop(open);
    }

    /// A panic elsewhere is not passed on: every critical section leaves the data valid.
    fn table(&self) -> MutexGuard<'_, PendingTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nothing is asked any more.
pub(super) fn over() -> Failure {
    Failure { fate: Fate::Ended, source: "the session is over".into() }
}

impl<T> Slot<T> {
    fn state(&self) -> MutexGuard<'_, RequestState<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, which is taken; otherwise this one is to be woken by it.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, Failure>> {
        let mut state = self.state();
        if let RequestState::Sent { request, waker } = &mut *state {
            match request.as_mut().poll(context) {
                Poll::Pending => {
                    waker.clone_from(context.waker());
                    return Poll::Pending;
                }
                Poll::Ready(answer) => *state = RequestState::Answered(answer),
            }
        }
        match mem::replace(&mut *state, RequestState::Taken) {
            RequestState::Answered(answer) => Poll::Ready(answer),
            _ => Poll::Pending,
        }
    }
}

impl<T: Send> AnyRequest for Slot<T> {
    fn is_answered(&self) -> bool {
        let mut state = self.state();
        let RequestState::Sent { request, waker } = &mut *state else { return true };
        let waker = waker.clone();
        let Poll::Ready(answer) = request.as_mut().poll(&mut Context::from_waker(&waker)) else { return false };
        *state = RequestState::Answered(answer);
        drop(state);
        waker.wake();
        true
    }

    fn end(&self, failure: Failure) {
        let mut state = self.state();
        if let RequestState::Sent { .. } = *state {
            let asked = mem::replace(&mut *state, RequestState::Answered(Err(failure)));
            drop(state);
            if let RequestState::Sent { waker, .. } = asked {
                waker.wake();
            }
        }
    }
}

impl<T: Send + 'static> Future for Tracked<T> {
    type Output = Result<T, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.slot.poll(context)
    }
}

impl<T: Send + 'static> Drop for Tracked<T> {
    fn drop(&mut self) {
        let (slot, requests, number) = (self.slot.clone(), self.requests.clone(), self.number);
        if !slot.is_answered()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(async move {
                let _ = future::poll_fn(|context| slot.poll(context)).await;
                requests.forget(number);
            });
            return;
        }
        requests.forget(number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::zookeeper::ZooKeeperServer;
    use tokio::sync::oneshot;

    use super::super::{LONGEST_BACKLOG, connect};
    use super::*;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;

    #[tokio::test]
    async fn a_request_for_which_there_is_no_room_is_unknown_at_once_and_a_deletion_waits() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let options = ZkConfig::new(server.url()).check(ClientCrate::ZookeeperClient).unwrap();
        // Nothing that waits is sent.
        let (scheduler, _not_sending) = Scheduler::new(connect::open(&options.connect).await.unwrap());
        let ask = |priority| scheduler.send(priority, |_| future::pending::<Result<u32, Error>>());
        let mut asked: Vec<_> = (0..AT_ONCE + LONGEST_BACKLOG).map(|_| ask(Priority::Normal)).collect();
        assert!(asked.iter_mut().all(|asked| asked.now_or_never().is_none()));
        assert_eq!(fate(ask(Priority::Normal).now_or_never()), Some(Fate::Unknown));
        assert_eq!(fate(ask(Priority::Detached).now_or_never()), None);
        assert_eq!(fate(ask(Priority::Urgent).now_or_never()), None);
    }

    /// A request whose answer is given by this sender.
    fn asked(requests: &Arc<PendingRequests>) -> (oneshot::Sender<u32>, Tracked<u32>) {
        let (answer, answered) = oneshot::channel();
        let lost = |_| Failure { fate: Fate::Unknown, source: "lost".into() };
        (answer, requests.track(Box::pin(async move { answered.await.map_err(lost) })))
    }

    fn fate(answer: Option<Result<u32, Failure>>) -> Option<Fate> {
        answer.map(|answer| answer.unwrap_err().fate)
    }

    #[test]
    fn a_request_that_is_passed_over_is_unknown_and_one_that_nobody_looked_at_is_not() {
        let requests = Arc::<PendingRequests>::default();
        let ((lost, mut passed_over), (answer, unseen)) = (asked(&requests), asked(&requests));
        let mark = requests.mark();
        let (_later, mut later) = asked(&requests);
        answer.send(7).unwrap();
        requests.answered_behind(mark);
        assert_eq!(fate((&mut passed_over).now_or_never()), Some(Fate::Unknown));
        assert_eq!(unseen.now_or_never().unwrap().unwrap(), 7);
        assert!((&mut later).now_or_never().is_none(), "it was sent behind");
        assert!(lost.is_closed(), "the request is not asked any more");
    }

    #[test]
    fn an_answer_that_is_found_wakes_whoever_waits() {
        let requests = Arc::<PendingRequests>::default();
        let (answer, tracked) = asked(&requests);
        let tracked = polled(tracked);
        assert!(!tracked.woken());
        answer.send(7).unwrap();
        assert_eq!(requests.unanswered_since(), None);
        assert!(tracked.woken());
        assert_eq!(tracked.future.now_or_never().unwrap().unwrap(), 7);
    }

    #[test]
    fn what_is_unanswered_is_told_from_its_sending_on() {
        let requests = Arc::<PendingRequests>::default();
        assert_eq!(requests.unanswered_since(), None);
        let ((first, one), (_second, two)) = (asked(&requests), asked(&requests));
        let since = requests.unanswered_since().unwrap();
        first.send(1).unwrap();
        assert!(requests.unanswered_since().unwrap() >= since);
        drop(two);
        assert_eq!(requests.unanswered_since(), None, "nobody waits for it any more");
        drop(one);
        assert!(requests.table().open.is_empty());
    }

    #[test]
    fn a_book_that_is_closed_keeps_nothing() {
        let requests = Arc::<PendingRequests>::default();
        let (answer, unpolled) = asked(&requests);
        requests.close();
        assert!(answer.is_closed(), "the request was kept");
        assert_eq!(fate(unpolled.now_or_never()), Some(Fate::Ended));
        let (answer, late) = asked(&requests);
        assert!(answer.is_closed(), "the request was kept");
        assert_eq!(fate(late.now_or_never()), Some(Fate::Ended));
    }

    /// A future that was polled once by a waker that counts.
    struct Watched {
        future: Tracked<u32>,
        wakes: Arc<Counter>,
    }

    #[derive(Default)]
    struct Counter(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    impl Watched {
        fn woken(&self) -> bool {
            self.wakes.0.load(std::sync::atomic::Ordering::SeqCst)
        }
    }

    fn polled(mut future: Tracked<u32>) -> Watched {
        let wakes = Arc::<Counter>::default();
        let waker = Waker::from(wakes.clone());
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
        Watched { future, wakes }
    }
}
