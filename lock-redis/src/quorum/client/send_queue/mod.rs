//! The requests to one server that wait to be sent: what many tasks ask for at one moment goes together.
//!
//! A request that is the only one is sent at once. The others wait until the client's runtime has come round, so whatever was ready to
//! ask by then goes with them. They are carried out in the order in which they were asked for, so an undo stays behind what it
//! undoes. No batch waits for the reply to another. What a batch has no answer for is asked again by itself, as long as its round has
//! not ended.

mod waiting;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::Value;
use tokio::runtime::Handle;
use tokio::task::{unconstrained, yield_now};

use self::waiting::{QueuedAnswer, QueuedRequest, WaitingRequests, parts};
use crate::client::link::request::{Failed, NotRun, Raw, evaluation_of, evaluation_of_all};
use crate::client::link::{CROWDED, Link};
use crate::error::RequestFate;
use crate::quorum::NAME;
use crate::quorum::store::scripts;
use crate::store::call::Call;
use crate::store::scripts::Script;

/// The most requests that wait here. There are more only if the client's runtime stands still.
const MOST_WAITING: usize = 65_536;

/// A run of a script, the same for every server.
#[derive(Debug)]
pub(in crate::quorum) struct ScriptRequest {
    script: &'static Script,
    pub(in crate::quorum) call: Call,
    pub(in crate::quorum) phase: Phase,
    /// Its letter in a batch; `None` if it goes by itself.
    letter: Option<char>,
    /// Whether something may have been sent that undoes it.
    is_over: AtomicBool,
}

impl ScriptRequest {
    /// A run of this script with these keys and arguments, which goes by itself.
    pub(in crate::quorum) fn new(script: &'static Script, call: Call, phase: Phase) -> Self {
        Self { script, call, phase, letter: None, is_over: AtomicBool::new(false) }
    }

    /// Lets it go with others, in a batch where its script has this letter.
    pub(in crate::quorum) fn with_others(mut self, letter: char) -> Self {
        self.letter = Some(letter);
        self
    }

    /// Has it not sent again from here on to a server that did not know its script: it is about to be undone.
    pub(in crate::quorum) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether it may be sent again.
    fn is_wanted(&self) -> bool {
        !self.is_over.load(Ordering::Acquire)
    }
}

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

#[cfg(test)]
mod tests;
