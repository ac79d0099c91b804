//! The requests to one server that wait to be sent, and which of them go together next: no I/O, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use lock_core::clock::BootInstant;
use redis::Value;
use tokio::sync::oneshot;

use super::ScriptRequest;
use crate::client::link::NO_TIME;
use crate::client::link::request::{Failed, Raw};

/// The most requests that go together: a run takes less than 5 ms.
pub(super) const MOST: usize = 32;
/// The bytes after which no further request joins those that go together.
pub(super) const MOST_BYTES: usize = 64 * 1024;

/// The requests to one server that wait to be sent, in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests {
    pub(super) requests: VecDeque<QueuedRequest>,
    /// Whether a task is about to send them.
    pub(super) is_seen_to: bool,
}

/// A request that waits, and where its caller is told the answer.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) request: Arc<ScriptRequest>,
    pub(super) until: BootInstant,
    told: oneshot::Sender<Result<Raw, Failed>>,
}

/// The answer that a request waits for.
pub(super) type QueuedAnswer = oneshot::Receiver<Result<Raw, Failed>>;

impl WaitingRequests {
    /// Takes the next batch: the first request, and those behind it that can go with it. Whoever has no time left is not sent.
    pub(super) fn take(&mut self, now: BootInstant, server: &str) -> Option<Vec<QueuedRequest>> {
        let (mut bytes, mut batch) = (0, Vec::new());
        while let Some(next) = self.requests.front() {
            let (letter, more) = (next.request.letter, next.request.call.len());
            let first: Option<&QueuedRequest> = batch.first();
            let fits = first.is_none_or(|first| {
                letter.is_some() && first.request.letter.is_some() && batch.len() < MOST && bytes + more <= MOST_BYTES
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
            bytes += more;
            batch.push(queued);
        }
        Some(batch).filter(|batch| !batch.is_empty())
    }
}

impl QueuedRequest {
    /// This request, to be answered by then; and where the answer comes.
    pub(super) fn of(request: &Arc<ScriptRequest>, until: BootInstant) -> (Self, QueuedAnswer) {
        let (told, answer) = oneshot::channel();
        (Self { request: request.clone(), until, told }, answer)
    }

    /// Tells the answer.
    pub(super) fn tell(self, outcome: Result<Raw, Failed>) {
        // Whoever does not wait for it any more has it counted as unanswered.
        let _ = self.told.send(outcome);
    }

    /// Tells why its batch failed.
    pub(super) fn fail(self, failed: &Failed) {
        let failed = failed.repeated(self.request.phase);
        self.tell(Err(failed));
    }
}

/// The parts of a batch's reply; `None` unless there are so many.
pub(super) fn parts(value: Value, requests: usize) -> Option<Vec<Value>> {
    value.into_sequence().ok().filter(|parts| parts.len() == requests)
}
