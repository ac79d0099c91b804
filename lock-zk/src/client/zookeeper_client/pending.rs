//! The requests of one connection that have no answer yet.
//!
//! A request belongs to the table of what is pending, not to whoever waits for its answer: a future that nobody polls any more
//! would otherwise keep the crate's client, and with it the session, for as long as it lives.
//!
//! The servers answer the requests of one session in order. So a request without an answer, when a later one has its own, will
//! never have one on this connection: its outcome is unknown.

use std::collections::BTreeMap;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::log;
use tokio::runtime::Handle;

use super::{Failure, Fate};

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
                log(|| tracing::warn!("a request has no answer, though a later one has: its answer was lost"));
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
    use tokio::sync::oneshot;

    use super::*;

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
