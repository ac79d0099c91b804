//! Requests in the short ways that go together: those that many tasks of one client ask for at the same moment, as one run of one
//! script.
//!
//! A request that is the only one is sent at once, as if there were no batches. The others join a [`Batch`], which a task
//! sends as soon as the runtime has come round: whatever was ready to ask by then goes with it. It is sent before that once it is
//! [enough](is_enough). No batch waits for the reply to another. Those to whom their batch has no answer go on by themselves, as they would have without one: a server that refuses a
//! batch has carried out nothing of it, and what was carried out for one is recognised by its nonce.

use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Batch, BatchPlace, Joined};
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::unconstrained;

use super::live::late;
use super::outcome::Outcome;
use super::request::{Failed, Text, evaluation_of_all};
use super::{Link, Live, SLACK, SendTurn, ShortReply};
use crate::error::{self, RequestFate};
use crate::store::call::{Request, ShortRequest, ShortWay};

/// The most bytes of one batch: a run of its script takes far less than 5 ms with them.
const MOST_BYTES: usize = 64 * 1024;

/// The part of all askers that goes at once, and the fewest that do: the server works on them while the others get ready. Were all to go
/// together, client and server would wait for each other by turns.
const ENOUGH: usize = 4;
const FEWEST: usize = 8;

/// Stands for the number of a connection while a request was not sent over any.
const UNSENT: u64 = 0;

/// The requests of one link that wait to be sent together.
#[derive(Debug)]
pub(super) struct Batches {
    ways: [ShortWayBatches; ShortWay::ALL],
    /// The connection's own, which sends them: a caller may be polled when it likes, or never again.
    runtime: Handle,
}

/// The batches of one short way.
#[derive(Debug, Default)]
struct ShortWayBatches {
    batch: Mutex<Batch<BatchMember>>,
    /// Held from the taking of a batch until it is in the connection's queue: whoever waits for this comes behind it there.
    sending: Mutex<()>,
}

/// A request that may go with others: its caller's and its batch's.
#[derive(Debug)]
pub(crate) struct BatchableRequest {
    pub(in crate::client) short: ShortRequest,
    /// The number of the connection over which it was sent.
    sent_over: AtomicU64,
    /// Told its outcome; nothing, or given up, if it is to go on by itself.
    outcome: Outcome<Option<RedisResult<ShortReply>>>,
}

/// A request in a batch. Its outcome is given up with it.
#[derive(Debug)]
struct BatchMember {
    request: Arc<BatchableRequest>,
}

impl Batches {
    /// Nothing yet; what is to be sent is sent in the present runtime.
    pub(super) fn new() -> Self {
        Self { ways: Default::default(), runtime: Handle::current() }
    }

    fn of(&self, way: ShortWay) -> &ShortWayBatches {
        &self.ways[way as usize]
    }
}

impl ShortWayBatches {
    fn batch(&self) -> MutexGuard<'_, Batch<BatchMember>> {
        // Every critical section leaves it valid after each statement.
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The size of the next batch, up to `most`, and the instant by which its first request must be answered; `None` if nobody is left, and
    /// then the sending task ends.
    fn due(&self, most: usize) -> Option<(usize, BootInstant)> {
        let mut batch = self.batch();
        // Under one lock: the task ends if this returns nothing.
        if batch.ends() { None } else { next(&batch, most) }
    }

    fn sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchableRequest {
    /// A request that was not sent yet.
    pub(crate) fn new(short: ShortRequest) -> Arc<Self> {
        Arc::new(Self { short, sent_over: AtomicU64::new(UNSENT), outcome: Outcome::open() })
    }

    /// The number of the connection over which it was sent, if it was.
    fn sent_over(&self) -> Option<u64> {
        Some(self.sent_over.load(Ordering::Acquire)).filter(|generation| *generation != UNSENT)
    }
}

impl Link {
    /// Has a request sent together with others; `None` if it is to go on by itself.
    ///
    /// `sent` is told the connection by the end of this future, however it ends, if anything may have been sent.
    pub(in crate::client) async fn run_in_batch(
        self: &Arc<Self>,
        request: &Arc<BatchableRequest>,
        sent: impl Fn(u64),
    ) -> Option<Result<ShortReply, Failed>> {
        let short = &request.short;
        let mut stay = self.join(request, sent);
        // The batch has its own timeout, but is sent by a runtime that may stand still.
        let left = short.until.plus(SLACK * 2).since(SystemClock.now());
        let outcome = tokio::time::timeout(left, request.outcome.told()).await;
        stay.is_told = outcome.is_ok();
        drop(stay);
        let outcome = match outcome {
            Ok(Some(outcome)) => outcome?,
            _ if request.sent_over().is_none() => return None,
            // Nobody is left to wait for its answer, or none came.
            Ok(None) => Err(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()),
            Err(_) => Err(late()),
        };
        Some(outcome.map_err(|error| Failed::of(error, short.way.phase(), self.server())))
    }

    /// Puts a request into a batch, and sees to it that this is sent if nobody else does.
    fn join<'a, S: Fn(u64)>(self: &'a Arc<Self>, request: &'a Arc<BatchableRequest>, sent: S) -> Stay<'a, S> {
        let (way, bytes) = (request.short.way, request.short.call.len());
        let batches = self.batches.of(way);
        let member = BatchMember { request: request.clone() };
        let (Joined { place, sees_to_it, .. }, waiting) = {
            let mut batch = batches.batch();
            (batch.join(member, bytes), batch.len())
        };
        let stay = Stay { batches, place, request, sent, is_told: false };
        let is_enough = is_enough(waiting, self.callers.load(Ordering::Relaxed));
        if sees_to_it {
            let sender = Sender { link: self.clone(), way, is_done: false };
            self.batches.runtime.spawn(sender.run());
        } else if is_enough {
            self.batches.runtime.spawn(self.clone().send_at_once(way));
        }
        stay
    }

    /// Sends one batch if there are turns for it now. Somebody else sees to those who wait, and to this one otherwise.
    async fn send_at_once(self: Arc<Self>, way: ShortWay) {
        let Some((number, until)) = next(&self.batches.of(way).batch(), way.most()) else { return };
        let Some(live) = self.present() else { return };
        let Some(SendTurn::Now(turns)) = live.turns(number, until).now_or_never() else { return };
        if let Some(sent) = self.send_batch(way, live, turns) {
            sent.answered().await;
        }
    }

    /// Takes the next batch and puts it into the connection's queue, in one step; a single request goes on by itself.
    fn send_batch(self: &Arc<Self>, way: ShortWay, live: Live, mut turns: OwnedSemaphorePermit) -> Option<Sent> {
        let batches = self.batches.of(way);
        let _sending = batches.sending();
        let mut members = batches.batch().take(turns.num_permits().min(way.most()), MOST_BYTES);
        let sent_at = SystemClock.now();
        // Whoever has no time left is not sent, and finds that out by itself.
        members.retain(|member| sent_at < member.request.short.until);
        if members.len() < 2 {
            return None;
        }
        // Somebody else may have sent some of those that the turns were for.
        drop(turns.split(turns.num_permits().saturating_sub(members.len())));
        // Whoever has less time than the others has a timeout of his own.
        let until = members.iter().map(|member| member.request.short.until).max()?;
        let calls = members.iter().map(|member| &member.request.short.call);
        let command = evaluation_of_all((way.in_batch(), Text::Never), way.counts_tokens(), None, calls);
        for member in &members {
            member.request.sent_over.store(live.generation, Ordering::Release);
        }
        let (by, mut over) = (self.clone(), live.clone());
        let mut request: InFlight =
            Box::pin(unconstrained(async move { by.send(&mut over, &command, false, until).await }));
        // The first poll puts it into the queue. Its waker is not needed yet: it is polled again.
        let outcome = request.as_mut().now_or_never();
        Some(Sent { link: self.clone(), way, live, turns, members, sent_at, request, outcome })
    }
}

/// The stay of a request in a batch.
struct Stay<'a, S: Fn(u64)> {
    batches: &'a ShortWayBatches,
    place: BatchPlace,
    request: &'a BatchableRequest,
    sent: S,
    /// Whether it was told its outcome.
    is_told: bool,
}

impl<S: Fn(u64)> Drop for Stay<'_, S> {
    /// Leaves the batch. If that was taken already, waits until it is in the connection's queue: an undo has to come behind the request.
    fn drop(&mut self) {
        if !self.is_told {
            // Dropped without the lock, as it gives an outcome up.
            let left = self.batches.batch().leave(self.place);
            if left.is_some() {
                return;
            }
            drop(self.batches.sending());
        }
        if let Some(generation) = self.request.sent_over() {
            (self.sent)(generation);
        }
    }
}

/// The task that sends the batches of one short way until nobody waits.
struct Sender {
    link: Arc<Link>,
    way: ShortWay,
    is_done: bool,
}

impl Sender {
    async fn run(mut self) {
        let link = self.link.clone();
        let batches = link.batches.of(self.way);
        // Whoever is ready to run has its turn before.
        tokio::task::yield_now().await;
        loop {
            let Some((number, until)) = batches.due(self.way.most()) else {
                self.is_done = true;
                return;
            };
            // Whoever waits here goes on by itself when this is dropped, and waits for a connection or its turn there.
            let Some(live) = self.link.present() else { return };
            let turns = match live.turns(number, until).await {
                SendTurn::Now(turns) => turns,
                SendTurn::Ended => continue,
                SendTurn::Never(_) => return,
            };
            let Some(sent) = link.send_batch(self.way, live, turns) else { continue };
            if batches.batch().ends() {
                self.is_done = true;
                return sent.answered().await;
            }
            self.link.batches.runtime.spawn(sent.answered());
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !self.is_done {
            // Told by this that they go on by themselves.
            let left = self.link.batches.of(self.way).batch().give_up();
            drop(left);
        }
    }
}

type InFlight = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// A batch that was sent.
struct Sent {
    link: Arc<Link>,
    way: ShortWay,
    live: Live,
    turns: OwnedSemaphorePermit,
    members: Vec<BatchMember>,
    sent_at: BootInstant,
    request: InFlight,
    /// The outcome, if that was there at once.
    outcome: Option<RedisResult<Value>>,
}

impl Sent {
    /// Waits for the answer and gives everybody its part.
    async fn answered(self) {
        let Self { link, way, live, turns, members, sent_at, request, outcome } = self;
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => request.await,
        };
        drop(turns);
        match outcome {
            Ok(value) => {
                let text = Arc::new(if let Value::BulkString(text) = value { text } else { Vec::new() });
                let reply = |part| ShortReply::part(&text, part, sent_at, live.generation);
                match parts(&text, members.len()) {
                    Some(parts) => members.into_iter().zip(parts).for_each(|(member, part)| {
                        member.tell(if part.is_empty() { None } else { Some(Ok(reply(part))) });
                    }),
                    // Nobody's answer, by which each finds out that the connection cannot be trusted.
                    None => members.into_iter().for_each(|member| member.tell(Some(Ok(reply(0..0))))),
                }
            }
            Err(error) if error::fate(&error) == RequestFate::Unknown => {
                members.into_iter().for_each(|member| member.tell(Some(Err(error.clone()))));
            }
            Err(error) => {
                members.into_iter().for_each(|member| member.tell(None));
                if error::is_no_script(&error) {
                    // Not sent again with its text: some of it may have been given up and undone meanwhile.
                    let nothing = Request::new(way.in_batch(), &[], &[]);
                    let until = SystemClock.now().plus(link.op_timeout());
                    let _ = link.run_on(live, nothing, false, until).await;
                }
            }
        }
    }
}

impl BatchMember {
    fn tell(self, outcome: Option<RedisResult<ShortReply>>) {
        // Whoever has gone away does not hear it; what it asked for is undone.
        self.request.outcome.tell(outcome);
    }
}

impl Drop for BatchMember {
    fn drop(&mut self) {
        self.request.outcome.give_up();
    }
}

/// The size of the next batch, up to `most`, and the instant by which its first request must be answered; `None` if nobody waits.
fn next(batch: &Batch<BatchMember>, most: usize) -> Option<(usize, BootInstant)> {
    batch.first().map(|first| (batch.len().min(most), first.request.short.until))
}

/// Whether the requests that wait, of this many askers, have just become enough to be sent at once.
const fn is_enough(waiting: usize, askers: usize) -> bool {
    let enough = askers / ENOUGH;
    waiting == if enough > FEWEST { enough } else { FEWEST }
}

/// Returns the parts of a batch's text, in the order of its requests: each ends with a line's end, and is empty where there is no
/// answer; `None` unless there are so many. One that is not empty begins with a nonce, in which no end is looked for: whoever reads the
/// part compares that.
fn parts(text: &[u8], requests: usize) -> Option<Vec<Range<usize>>> {
    let mut parts = Vec::with_capacity(requests);
    let mut begin = 0;
    while let Some(first) = text.get(begin) {
        let shortest = if *first == b'\n' { begin } else { begin + GrantId::LENGTH };
        let end = shortest + text.get(shortest..)?.iter().position(|byte| *byte == b'\n')?;
        parts.push(begin..end);
        begin = end + 1;
    }
    (!parts.is_empty() && parts.len() == requests).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_all_askers_is_enough_and_eight_at_least() {
        for (askers, enough) in [(2, 8), (16, 8), (35, 8), (36, 9), (64, 16), (1000, 250)] {
            let sent_at: Vec<_> = (1..=askers.max(enough)).filter(|waiting| is_enough(*waiting, askers)).collect();
            assert_eq!(sent_at, [enough], "of {askers}");
        }
    }

    #[test]
    fn a_text_has_as_many_parts_as_there_are_requests() {
        let nonce = "0123456789abcdef0123456789abcdef";
        let answers = format!("{nonce}+17\n\n{nonce}-\n");
        assert_eq!(parts(answers.as_bytes(), 3), Some(vec![0..35, 36..36, 37..70]));
        assert_eq!(parts(format!("{nonce}\n\n").as_bytes(), 2), Some(vec![0..32, 33..33]));
        assert_eq!(parts(b"\n\n", 2), Some(vec![0..0, 1..1]));
        let unended = format!("{nonce}+17");
        for (text, requests) in
            [(&*answers, 2), (&answers, 4), (&unended, 1), (nonce, 1), ("ab\n", 1), ("", 0), ("", 1)]
        {
            assert_eq!(parts(text.as_bytes(), requests), None, "{text:?}");
        }
    }
}
