//! The requests to one server that wait to be sent: what many tasks ask for at one moment goes together.
//!
//! A request that is the only one is sent at once. The others wait until the client's runtime has come round, so whatever was ready to
//! ask by then goes with them. They are carried out in the order in which they were asked for, so an undo stays behind what it
//! undoes. No batch waits for the reply to another. What a batch has no answer for is asked again by itself, as long as its round has
//! not ended.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{unconstrained, yield_now};

use super::NAME;
use super::script_request::ScriptRequest;
use super::scripts;
use crate::client::link::request::{Failed, NotRun, Raw, evaluation_of, evaluation_of_all};
use crate::client::link::{CROWDED, Link, NO_TIME};
use crate::error::RequestFate;

/// The most acquisitions that go together, or a fourth as many releases, each of which may pass over 64 clients that are gone: a run takes less
/// than 5 ms. And the bytes after which no further one joins them.
const MOST: usize = 32;
const MOST_BYTES: usize = 64 * 1024;

/// The most requests that wait here. There are more only if the client's runtime stands still.
const MOST_WAITING: usize = 65_536;

/// The requests to one server that wait to be sent.
#[derive(Debug)]
pub(super) struct SendQueue {
    link: Arc<Link>,
    waiting: Mutex<WaitingRequests>,
    /// The number of requests that wait here, or for their replies.
    in_flight: AtomicUsize,
    /// The client's: a caller may be polled when it likes, or never again.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct WaitingRequests {
    requests: VecDeque<QueuedRequest>,
    /// Whether a task is about to send them.
    is_seen_to: bool,
}

#[derive(Debug)]
struct QueuedRequest {
    request: Arc<ScriptRequest>,
    until: BootInstant,
    told: oneshot::Sender<Result<Raw, Failed>>,
}

/// The answer that a request waits for.
type QueuedAnswer = oneshot::Receiver<Result<Raw, Failed>>;

/// A request on its way, until this is dropped.
struct RequestInFlight<'a>(&'a AtomicUsize);

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SendQueue {
    /// Nothing yet; what is to be sent over this link is sent in the present runtime.
    pub(super) fn over(link: Arc<Link>) -> Arc<Self> {
        let (waiting, in_flight) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { link, waiting, in_flight, runtime: Handle::current() })
    }

    /// Has a request carried out or, without a connection, not at all. It is in the queue, or sent, when this was polled once.
    pub(super) async fn run(self: &Arc<Self>, request: &Arc<ScriptRequest>, until: BootInstant) -> Result<Raw, Failed> {
        if let Some(down) = self.link.outage() {
            return Err(Failed { fate: RequestFate::Refused, error: down, wrong_type: false });
        }
        let has_company = self.in_flight.fetch_add(1, Ordering::Relaxed) > 0;
        let _counted = RequestInFlight(&self.in_flight);
        let answer = match self.join(request, until, has_company)? {
            Some(answer) => answer,
            // Not a part of every request's future.
            None => match Box::pin(self.send_one(request, until)).await {
                Err(NotRun { script_unknown: true, failed }) => self.again(request, until).ok_or(failed)?,
                outcome => return outcome.map_err(|not_run| not_run.failed),
            },
        };
        answer.await.unwrap_or_else(|_| {
            let what = "the task that was to send the request has ended";
            let error = Error::indeterminate(request.phase, what).with_backend(NAME).with_server(self.link.server());
            Err(Failed { fate: RequestFate::Unknown, error, wrong_type: false })
        })
    }

    /// Puts a request into the queue; `None` if it is to go by itself, since nobody else asks.
    fn join(
        self: &Arc<Self>,
        request: &Arc<ScriptRequest>,
        until: BootInstant,
        has_company: bool,
    ) -> Result<Option<QueuedAnswer>, Failed> {
        let mut waiting = self.waiting();
        if !has_company && waiting.requests.is_empty() {
            return Ok(None);
        }
        if waiting.requests.len() >= MOST_WAITING {
            return Err(Failed::no_turn(CROWDED, request.phase, self.link.server()));
        }
        let (queued, answer) = QueuedRequest::of(request, until);
        waiting.requests.push_back(queued);
        let is_seen_to = std::mem::replace(&mut waiting.is_seen_to, true);
        // A runtime that has shut down drops the sender here, which locks the queue.
        drop(waiting);
        if !is_seen_to {
            let sender = QueueSender { queue: self.clone(), is_done: false };
            self.runtime.spawn(sender.run());
        }
        Ok(Some(answer))
    }

    /// Has a request sent again by itself, to a server that did not know its script; `None` if its round has ended.
    fn again(self: &Arc<Self>, request: &Arc<ScriptRequest>, until: BootInstant) -> Option<QueuedAnswer> {
        // What ends the round does so before it comes here with what undoes it.
        let waiting = self.waiting();
        let (queued, answer) = QueuedRequest::of(request, until);
        request.is_wanted().then(|| {
            self.begin(&waiting, vec![queued]);
            answer
        })
    }

    /// Sends a batch, and has its answers waited for in the background. The queue is locked: nothing comes between.
    fn begin(self: &Arc<Self>, _order: &MutexGuard<'_, WaitingRequests>, batch: Vec<QueuedRequest>) {
        let queue = self.clone();
        let mut sending = Box::pin(unconstrained(async move {
            let outcome = queue.send(&batch).await;
            (queue, batch, outcome)
        }));
        // The first poll puts it into the connection's queue. Its waker is not needed yet: it is polled again. An outcome that is there
        // at once is not dealt with here, under the lock.
        let sent = sending.as_mut().now_or_never();
        self.runtime.spawn(async move {
            let (queue, batch, outcome) = match sent {
                Some(sent) => sent,
                None => sending.await,
            };
            queue.settle(batch, outcome);
        });
    }

    /// Sends a batch: one request as its own script, several as one.
    async fn send(&self, batch: &[QueuedRequest]) -> Result<Raw, NotRun> {
        if let [QueuedRequest { request, until, .. }] = batch {
            return self.send_one(request, *until).await;
        }
        // Whoever has less time than the others has a timeout of his own.
        let until = batch.iter().map(|queued| queued.until).max().unwrap_or(BootInstant::FAR_FUTURE);
        let letters: String = batch.iter().filter_map(|queued| queued.request.letter).collect();
        let calls = batch.iter().map(|queued| &queued.request.call);
        let command = |text| evaluation_of_all((&scripts::BATCH, text), false, Some(&letters), calls);
        self.link.run_now(&scripts::BATCH, command, (Phase::Acquire, until)).await
    }

    async fn send_one(&self, request: &ScriptRequest, until: BootInstant) -> Result<Raw, NotRun> {
        let ScriptRequest { script, call, phase, .. } = request;
        self.link.run_now(script, |text| evaluation_of(script, call, text), (*phase, until)).await
    }

    /// Tells everybody in a batch its answer. Those to whom it has none are asked for by themselves, if they are still wanted: a server
    /// that refuses a batch has carried out nothing of it, and what was carried out for one is recognised by its nonce.
    fn settle(self: &Arc<Self>, batch: Vec<QueuedRequest>, outcome: Result<Raw, NotRun>) {
        let several = batch.len() > 1;
        match outcome {
            Ok(raw) if several => match parts(raw.value, batch.len()) {
                Some(parts) => {
                    for (queued, part) in batch.into_iter().zip(parts) {
                        match part {
                            Value::BulkString(text) if text.is_empty() => self.ask_again(queued, None),
                            value => queued.tell(Ok(Raw { value, generation: raw.generation })),
                        }
                    }
                }
                // Nobody's answer, by which each finds out that the connection cannot be trusted.
                None => batch.into_iter().for_each(|queued| {
                    queued.tell(Ok(Raw { value: Value::Nil, generation: raw.generation }));
                }),
            },
            Err(NotRun { failed, script_unknown })
                if script_unknown || (several && failed.fate == RequestFate::Refused) =>
            {
                batch.into_iter().for_each(|queued| self.ask_again(queued, Some(&failed)));
            }
            Err(NotRun { failed, .. }) if several => batch.into_iter().for_each(|queued| queued.fail(&failed)),
            outcome => {
                // That of a single request.
                if let Some(queued) = batch.into_iter().next() {
                    queued.tell(outcome.map_err(|not_run| not_run.failed));
                }
            }
        }
    }

    /// Sends a request by itself, unless its round has ended: then it has failed, like this if a reason is known.
    fn ask_again(self: &Arc<Self>, queued: QueuedRequest, failed: Option<&Failed>) {
        let waiting = self.waiting();
        if queued.request.is_wanted() {
            return self.begin(&waiting, vec![queued]);
        }
        drop(waiting);
        match failed {
            Some(failed) => queued.fail(failed),
            None => {
                let error = Error::indeterminate(queued.request.phase, "the round has ended").with_backend(NAME);
                queued.tell(Err(Failed { fate: RequestFate::Unknown, error, wrong_type: false }));
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingRequests> {
        // Every critical section leaves it valid after each statement.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that sends what waits.
struct QueueSender {
    queue: Arc<SendQueue>,
    is_done: bool,
}

impl QueueSender {
    async fn run(mut self) {
        // Whoever is ready to run has its turn before.
        yield_now().await;
        let mut waiting = self.queue.waiting();
        while let Some(batch) = waiting.take(SystemClock.now(), self.queue.link.server()) {
            self.queue.begin(&waiting, batch);
        }
        waiting.is_seen_to = false;
        drop(waiting);
        self.is_done = true;
    }
}

impl Drop for QueueSender {
    fn drop(&mut self) {
        if !self.is_done {
            // By a panic, or with the runtime. Who waited is told by this.
            let mut waiting = self.queue.waiting();
            waiting.is_seen_to = false;
            let left = std::mem::take(&mut waiting.requests);
            drop(waiting);
            drop(left);
        }
    }
}

impl WaitingRequests {
    /// Takes the next batch: the first request, and those behind it that can go with it. Whoever has no time left is not sent.
    fn take(&mut self, now: BootInstant, server: &str) -> Option<Vec<QueuedRequest>> {
        let (mut bytes, mut weight, mut batch) = (0, 0, Vec::new());
        while let Some(next) = self.requests.front() {
            let (letter, more) = (next.request.letter, next.request.call.len());
            let heavier = if letter == Some('r') { 4 } else { 1 };
            let first: Option<&QueuedRequest> = batch.first();
            let fits = first.is_none_or(|first| {
                letter.is_some()
                    && first.request.letter.is_some()
                    && weight + heavier <= MOST
                    && bytes + more <= MOST_BYTES
            });
            if !fits {
                break;
            }
            // It is there: it was looked at.
            let Some(queued) = self.requests.pop_front() else { break };
            if now >= queued.until {
                let late = Failed::no_turn(NO_TIME, queued.request.phase, server);
                queued.tell(Err(late));
                continue;
            }
            (bytes, weight) = (bytes + more, weight + heavier);
            batch.push(queued);
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }
}

impl QueuedRequest {
    fn of(request: &Arc<ScriptRequest>, until: BootInstant) -> (Self, QueuedAnswer) {
        let (told, answer) = oneshot::channel();
        (Self { request: request.clone(), until, told }, answer)
    }

    fn tell(self, outcome: Result<Raw, Failed>) {
        // Whoever does not wait for it any more has it counted as unanswered.
        let _ = self.told.send(outcome);
    }

    /// Tells why its batch failed.
    fn fail(self, failed: &Failed) {
        let failed = failed.repeated(self.request.phase);
        self.tell(Err(failed));
    }
}

/// The parts of a batch's reply; `None` unless there are so many.
fn parts(value: Value, requests: usize) -> Option<Vec<Value>> {
    value.into_sequence().ok().filter(|parts| parts.len() == requests)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;
    use lock_testkit::testing::installed;
    use lock_testkit_servers::redis::RedisServer;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Opener};
    use crate::client::link::call::Call;
    use crate::url::Login;

    fn request(letter: Option<char>, bytes: usize) -> Arc<ScriptRequest> {
        let request = ScriptRequest::new(&scripts::INSPECT, Call::of(["x".repeat(bytes)]), Phase::Acquire);
        Arc::new(match letter {
            Some(letter) => request.with_others(letter),
            None => request,
        })
    }

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    /// The letters of the batches that these requests make.
    fn batches(requests: impl IntoIterator<Item = Arc<ScriptRequest>>) -> Vec<String> {
        let mut waiting = WaitingRequests::default();
        waiting.requests.extend(requests.into_iter().map(|request| QueuedRequest::of(&request, at(2)).0));
        let letters =
            |batch: Vec<QueuedRequest>| batch.iter().map(|queued| queued.request.letter.unwrap_or('-')).collect();
        std::iter::from_fn(|| waiting.take(at(1), "a server").map(letters)).collect()
    }

    #[test]
    fn requests_go_in_their_order_and_those_without_a_letter_by_themselves() {
        let letters = [Some('a'), Some('r'), None, None, Some('r'), Some('a'), Some('a'), None];
        assert_eq!(batches(letters.map(|letter| request(letter, 9))), ["ar", "-", "-", "raa", "-"]);
    }

    #[test]
    fn a_batch_has_so_many_requests_and_bytes_at_most() {
        let many = batches((0..MOST * 2 + 1).map(|_| request(Some('a'), 9)));
        assert_eq!(many.iter().map(String::len).collect::<Vec<_>>(), [MOST, MOST, 1]);
        let releases = batches((0..MOST).map(|_| request(Some('r'), 9)));
        assert_eq!(releases.iter().map(String::len).collect::<Vec<_>>(), [MOST / 4; 4]);
        let large = [MOST_BYTES + 1, MOST_BYTES - 9, 9, 1].map(|bytes| request(Some('r'), bytes));
        assert_eq!(batches(large), ["r", "rr", "r"]);
    }

    #[test]
    fn whoever_has_no_time_left_is_not_sent_and_told_so() {
        let mut waiting = WaitingRequests::default();
        let [(late, mut told), (early, mut other)] =
            [1, 3].map(|until| QueuedRequest::of(&request(Some('a'), 9), at(until)));
        waiting.requests.extend([late, early]);
        assert_eq!(waiting.take(at(1), "a server").map(|batch| batch.len()), Some(1));
        let failed = told.try_recv().unwrap().unwrap_err();
        assert!(failed.error.is_definite() && failed.fate == RequestFate::Refused, "{failed:?}");
        assert!(waiting.take(at(1), "a server").is_none());
        // The batch was dropped here.
        assert!(other.try_recv().is_err());
    }

    /// A runtime that has shut down drops a task where it is begun, and with it what waits in the queue.
    #[test]
    fn a_request_in_a_runtime_that_has_shut_down_is_not_sent_and_stops_nobody() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let queue = runtime.block_on(async {
            let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
            let nobody = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
            SendQueue::over(Link::begin(Arc::new(Dial::to(Arc::new(opener), nobody)), Arc::default()))
        });
        drop(runtime);
        let (done, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let until = SystemClock.now().plus(Duration::from_secs(10));
            let answers = [(); 2].map(|()| queue.join(&request(Some('a'), 9), until, true).unwrap().unwrap());
            done.send(answers).unwrap();
        });
        let mut answers = ended.recv_timeout(Duration::from_secs(10)).expect("nobody is stopped");
        assert!(answers.iter_mut().all(|answer| matches!(answer.try_recv(), Err(TryRecvError::Closed))));
    }

    /// A server that has forgotten its scripts is asked again, for what is not over.
    #[tokio::test]
    async fn what_is_over_is_not_asked_for_again() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let dial = Dial::to(Arc::new(opener), Address::Tcp { host, port: port.parse().unwrap() });
        let link = Link::begin(Arc::new(dial), Arc::default());
        let until = SystemClock.now().plus(Duration::from_secs(10));
        link.ready(until).await.unwrap();
        let (queue, operator) = (SendQueue::over(link.clone()), server.client().unwrap());
        let asked = |names: [&str; 3]| {
            names.map(|name| {
                let args = ["00112233445566778899aabbccddeeff", "1", "60000", "{}", "", "0"];
                let call = Call::of([name, "waiters"]).with(args);
                Arc::new(ScriptRequest::new(&scripts::ACQUIRE, call, Phase::Acquire).with_others('a'))
            })
        };
        // The first one goes by itself, the others go together.
        let known = asked(["a", "b", "c"]);
        assert!(join_all(known.iter().map(|request| queue.run(request, until))).await.iter().all(Result::is_ok));
        operator.command(&["SCRIPT", "FLUSH"]).await.unwrap();
        server.stop().unwrap();
        let requests = asked(["d", "e", "f"]);
        let mut answers: Vec<_> = requests.iter().map(|request| Box::pin(queue.run(request, until))).collect();
        assert!(answers.iter_mut().all(|answer| answer.now_or_never().is_none()));
        requests[2].end();
        server.cont().unwrap();
        let answers = join_all(answers).await;
        assert_eq!(answers.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false], "{answers:?}");
        assert_eq!(operator.command(&["EXISTS", "d", "e", "f"]).await.unwrap().as_int(), Some(2));
        link.close();
    }
}
