//! The requests to one server that wait to be sent: what many tasks ask for at one moment goes together.
//!
//! A request that is the only one is sent at once. The others wait until the client's runtime has come round, so whatever was ready to
//! ask by then goes with them. They are carried out in the order in which they were asked for, so an undo stays behind what it
//! undoes. No batch waits for the reply to another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use lock_core::clock::BootInstant;
use lock_core::{Error, Phase};
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{unconstrained, yield_now};

use super::NAME;
use super::script_request::ScriptRequest;
use super::scripts;
use crate::client::link::Link;
use crate::client::link::request::{Failed, NotRun, Raw, evaluation_of, evaluation_of_all};
use crate::error::RequestFate;

/// The most requests that go together, and the bytes after which no further one joins them. A release may pass over 64 clients that are
/// gone: with so many of them a run takes less than 5 ms.
const MOST: usize = 32;
const MOST_BYTES: usize = 64 * 1024;

/// What precedes an error in the reply of a batch.
const ERROR: u8 = b'!';

/// The requests to one server that wait to be sent.
#[derive(Debug)]
pub(super) struct SendQueue {
    link: Arc<Link>,
    waiting: Mutex<Waiting>,
    /// The number of requests that wait here, or for their replies.
    in_flight: AtomicUsize,
    /// The client's: a caller may be polled when it likes, or never again.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Waiting {
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

/// A request on its way, until this is dropped.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SendQueue {
    /// Nothing yet; what is to be sent over this link is sent in the present runtime.
    pub(super) fn over(link: Arc<Link>) -> Arc<Self> {
        Arc::new(Self { link, waiting: Mutex::default(), in_flight: AtomicUsize::new(0), runtime: Handle::current() })
    }

    /// Has a request carried out or, without a connection, not at all. It is in the queue, or sent, when this was polled once.
    pub(super) async fn run(self: &Arc<Self>, request: &Arc<ScriptRequest>, until: BootInstant) -> Result<Raw, Failed> {
        if let Some(down) = self.link.outage() {
            return Err(Failed { fate: RequestFate::Refused, error: down, wrong_type: false });
        }
        let has_company = self.in_flight.fetch_add(1, Ordering::Relaxed) > 0;
        let _counted = InFlight(&self.in_flight);
        let Some(answer) = self.join(request, until, has_company) else { return self.alone(request, until).await };
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
    ) -> Option<oneshot::Receiver<Result<Raw, Failed>>> {
        let mut waiting = self.waiting();
        if !has_company && waiting.requests.is_empty() {
            return None;
        }
        let (told, answer) = oneshot::channel();
        waiting.requests.push_back(QueuedRequest { request: request.clone(), until, told });
        if !std::mem::replace(&mut waiting.is_seen_to, true) {
            let queue = self.clone();
            self.runtime.spawn(async move {
                // Whoever is ready to run has its turn before.
                yield_now().await;
                queue.send_all();
            });
        }
        Some(answer)
    }

    fn send_all(self: &Arc<Self>) {
        let mut waiting = self.waiting();
        waiting.is_seen_to = false;
        while let Some(batch) = waiting.take() {
            self.begin(&waiting, batch);
        }
    }

    /// Sends a batch, and has its answers waited for in the background. The queue is locked: nothing comes between.
    fn begin(self: &Arc<Self>, _order: &MutexGuard<'_, Waiting>, batch: Vec<QueuedRequest>) {
        let mut carried = Box::pin(unconstrained(self.clone().carry_out(batch)));
        // The first poll puts it into the connection's queue. Its waker is not needed yet: it is polled again.
        if carried.as_mut().now_or_never().is_none() {
            self.runtime.spawn(carried);
        }
    }

    /// Sends a batch, and tells everybody its answer.
    async fn carry_out(self: Arc<Self>, mut batch: Vec<QueuedRequest>) {
        if batch.len() == 1
            && let Some(QueuedRequest { request, until, told }) = batch.pop()
        {
            // Whoever does not wait for it any more has it counted as unanswered.
            let _ = told.send(self.alone(&request, until).await);
            return;
        }
        // Whoever has less time than the others has a timeout of his own.
        let Some(until) = batch.iter().map(|queued| queued.until).max() else { return };
        let letters: String = batch.iter().filter_map(|queued| queued.request.letter).collect();
        let calls = batch.iter().map(|queued| &queued.request.call);
        let command = |text| evaluation_of_all((&scripts::BATCH, text), Some(&letters), calls.clone());
        match self.link.run_now(&scripts::BATCH, command, (Phase::Acquire, until)).await {
            Ok(Raw { value, generation }) => {
                let values = value.into_sequence().unwrap_or_default();
                if values.len() == batch.len() {
                    for (queued, value) in batch.into_iter().zip(values) {
                        queued.answer(value, generation, self.link.server());
                    }
                } else {
                    // Nobody's answer, by which each finds out that the connection cannot be trusted.
                    batch.into_iter().for_each(|queued| queued.answer(Value::Nil, generation, self.link.server()));
                }
            }
            Err(NotRun { script_unknown: true, failed }) => {
                let waiting = self.waiting();
                let (wanted, over): (Vec<_>, Vec<_>) = batch.into_iter().partition(|queued| queued.request.is_wanted());
                over.into_iter().for_each(|queued| queued.fail(&failed));
                if !wanted.is_empty() {
                    self.begin(&waiting, wanted);
                }
            }
            Err(NotRun { failed, .. }) => batch.into_iter().for_each(|queued| queued.fail(&failed)),
        }
    }

    /// Has a request carried out by itself; once more if the server did not know its script and it is still wanted.
    async fn alone(&self, request: &ScriptRequest, until: BootInstant) -> Result<Raw, Failed> {
        let ScriptRequest { script, call, phase, .. } = request;
        let run = || self.link.run_now(script, |text| evaluation_of(script, call, text), (*phase, until));
        match run().await {
            Err(NotRun { script_unknown: true, .. }) if request.is_wanted() => run().await.map_err(|not| not.failed),
            outcome => outcome.map_err(|not| not.failed),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Every critical section leaves it valid after each statement.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Takes the next batch: the first request, and those behind it that can go with it.
    fn take(&mut self) -> Option<Vec<QueuedRequest>> {
        let first = self.requests.pop_front()?;
        let (mut bytes, mut batch) = (first.request.call.len(), vec![first]);
        while batch[0].request.letter.is_some()
            && batch.len() < MOST
            && let Some(next) = self.requests.front()
            && next.request.letter.is_some()
            && bytes + next.request.call.len() <= MOST_BYTES
        {
            bytes += next.request.call.len();
            batch.extend(self.requests.pop_front());
        }
        Some(batch)
    }
}

impl QueuedRequest {
    /// Tells its part of a batch's answer.
    fn answer(self, value: Value, generation: u64, server: &str) {
        let outcome = match value {
            Value::BulkString(text) if text.first() == Some(&ERROR) => {
                Err(Failed::told(&text[1..], self.request.phase, server))
            }
            value => Ok(Raw { value, generation }),
        };
        let _ = self.told.send(outcome);
    }

    /// Tells why the batch failed.
    fn fail(self, failed: &Failed) {
        let _ = self.told.send(Err(failed.again(self.request.phase)));
    }
}
