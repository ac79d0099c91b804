//! The one task that asks for all locks on which a client waits: its sign of life, and what brings back lost pushes.

mod echo;
mod reply_timeout;
mod schedule;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::log;
use lock_core::{Error, GrantId, Phase};

use self::echo::Echo;
use self::schedule::{HeartbeatBatch, HeartbeatSchedule, PipelineOutcome};
use crate::address::Address;
use crate::client::identity::Identity;
use crate::client::link::request::{Failed, Raw};
use crate::client::links::Links;
use crate::client::push::Push;
use crate::error;
use crate::guarantees::Topology;
use crate::store::call::Call;
use crate::store::keys::{Form, Keys};
use crate::store::reply::Fields;
use crate::store::scripts;
use crate::wait::foreign::ForeignHolders;
use crate::wait::machine::{HeartbeatReply, KnownHolder, Pause};
use crate::wait::queue::{DueHeartbeat, WaitQueues};

/// The heartbeats that one pipeline carries, at most; of short ones, and of long ones.
const QUIET_PIPELINE: usize = 512;
const PIPELINE: usize = 128;
/// The grants that nobody wants any more and that are on their way back at once.
const MOST_RETURNS: usize = 128;
/// The locks that a short heartbeat is for, at most: its script holds the server for half a millisecond at most.
const LOCKS_PER_RUN: usize = 64;
/// The answer of `scripts/mutex/heartbeat_short.lua` for a lock that is for a long heartbeat.
const NOT_QUIET: i64 = -5;
/// The answer of `scripts/mutex/heartbeat_short.lua` for a lock whose holder is the one that was asked about.
const SAME: i64 = 0;

/// The heartbeats of one client.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    links: Arc<Links>,
    queues: Arc<WaitQueues>,
    push: Arc<Push>,
    identity: Arc<Identity>,
    foreign: Arc<ForeignHolders>,
}

impl Heartbeats {
    /// The heartbeats for those who wait in these queues.
    pub(crate) fn new(
        links: &Arc<Links>,
        queues: &Arc<WaitQueues>,
        push: &Arc<Push>,
        identity: Arc<Identity>,
        foreign: Arc<ForeignHolders>,
    ) -> Self {
        Self { links: links.clone(), queues: queues.clone(), push: push.clone(), identity, foreign }
    }

    /// Releases what a waiter that gave up was granted all the same. Best effort: its undo ends it otherwise, or its time.
    async fn return_unwanted(&self, nonce: GrantId, keys: &Keys) {
        let nonce = nonce.to_string();
        // The next ones are let in in nobody's name, so that a next holder of this client is told by push too.
        let (client, channels) = (self.identity.client.as_bytes(), self.identity.channels.as_bytes());
        let args = [nonce.as_bytes(), client, channels, keys.shared_arg(), b"1"];
        if let Err(error) = self.links.run_once(&keys.scripts().cancel, keys, &args, Phase::Cancel).await {
            log(|| tracing::debug!(%error, "an unwanted grant could not be released"));
        }
    }

    /// Sends the heartbeats of one pipeline. With `echo`, the first asks for an echo.
    async fn send(
        &self,
        HeartbeatBatch { server, kind, heartbeats: due, timeout }: Pipeline,
        echo: bool,
    ) -> HeartbeatOutcome {
        let sent_at = SystemClock.now();
        let until = sent_at.plus(timeout);
        if kind.quiet {
            return HeartbeatOutcome {
                server,
                sent_at,
                echo,
                answers: self.short_heartbeats(due, sent_at, echo, until).await,
            };
        }
        let calls: Vec<_> = due.iter().enumerate().map(|(i, due)| self.call(due, echo && i == 0)).collect();
        let outcomes = self.links.run_each(&kind.form.scripts().heartbeat, &calls, Phase::Wait, until).await;
        let read = |(due, outcome): (DueHeartbeat, Result<Raw, Failed>)| {
            let answer = outcome.map_err(|failed| failed.error).and_then(|raw| self.read(&due, sent_at, raw));
            (due, answer.map(Some))
        };
        HeartbeatOutcome { server, sent_at, echo, answers: due.into_iter().zip(outcomes).map(read).collect() }
    }

    /// The usual sign of life at many locks, some of them in each run of a script.
    async fn short_heartbeats(
        &self,
        due: Vec<DueHeartbeat>,
        sent_at: BootInstant,
        echo: bool,
        until: BootInstant,
    ) -> Vec<HeartbeatAnswer> {
        let call = |(i, some): (usize, &[DueHeartbeat])| {
            let echo = if echo && i == 0 { "1" } else { "" };
            let first = [&*self.identity.client, &self.identity.channels, &number_of(some), echo];
            let mut call = Call::of(some.iter().flat_map(|due| due.lock.to_heartbeat())).with(first);
            for DueHeartbeat { nonces, holder, .. } in some {
                // It has one waiter.
                nonces.iter().take(1).for_each(|nonce| call.push(nonce.to_string()));
                call.push(holder.as_ref().map_or("", KnownHolder::beginning));
            }
            call
        };
        let calls: Vec<_> = due.chunks(LOCKS_PER_RUN).enumerate().map(call).collect();
        let outcomes = self.links.run_each(&scripts::HEARTBEAT_SHORT, &calls, Phase::Wait, until).await;
        let mut answers = Vec::with_capacity(due.len());
        let mut due = due.into_iter();
        for outcome in outcomes {
            let some: Vec<_> = due.by_ref().take(LOCKS_PER_RUN).collect();
            let read = outcome.map_err(|failed| failed.error).and_then(|raw| {
                let mut fields = self.links.fields(raw, &number_of(&some), Phase::Wait)?;
                some.iter().map(|due| read_short(&mut fields, due, sent_at)).collect::<Result<Vec<_>, _>>()
            });
            match read {
                Ok(read) => answers.extend(some.into_iter().zip(read).map(|(due, answer)| (due, Ok(answer)))),
                Err(error) => {
                    answers.extend(some.into_iter().map(|due| (due, Err(error::repeated(&error, error.phase())))));
                }
            }
        }
        answers
    }

    fn call(&self, due: &DueHeartbeat, echo: bool) -> Call {
        let echo = if echo { "1" } else { "" };
        let first = [
            &*self.identity.client,
            &self.identity.channels,
            if due.lock.shared { "1" } else { "" },
            &due.number.to_string(),
            echo,
        ];
        Call::of(due.lock.all()).with(first).with(due.nonces.iter().map(ToString::to_string))
    }

    fn read(&self, due: &DueHeartbeat, sent_at: BootInstant, raw: Raw) -> Result<HeartbeatReply, Error> {
        let mut fields = self.links.fields(raw, &due.number.to_string(), Phase::Wait)?;
        let known = fields.number()? == 1;
        let pause = Pause::of(fields.number()?);
        let queued = fields.text()?.bytes().map(|digit| digit == b'1').collect();
        let last_token = u64::try_from(fields.number()?).ok();
        Ok(HeartbeatReply { sent_at, known, pause, queued, last_token, holder: None, grants: fields.grants()? })
    }

    /// Asks for all locks on which this client waits, until its links are closed.
    pub(crate) async fn run(self: Arc<Self>) {
        // The heartbeats that an earlier run had on their way have gone with it.
        self.queues.begin_anew();
        let mut heartbeats = FuturesUnordered::new();
        let mut returns = FuturesUnordered::new();
        let mut doubts = self.links.doubts();
        let (mut echo, mut schedule) = (Echo::default(), HeartbeatSchedule::new(self.links.op_timeout()));
        while !self.links.is_closed() {
            let (due, next) = self.queues.due(usize::MAX);
            // One that is being replaced already is left alone.
            if echo.is_missing(SystemClock.now(), self.push.heard_at()) && self.push.is_up() {
                log(|| tracing::info!(server = self.links.server(), "no pushes arrive; subscribing anew"));
                self.push.distrust();
            }
            for (nonce, keys) in self.queues.unwanted(MOST_RETURNS - returns.len().min(MOST_RETURNS)) {
                let this = &self;
                returns.push(async move { this.return_unwanted(nonce, &keys).await });
            }
            due.into_iter().for_each(|due| self.lay(&mut schedule, due));
            let size = |kind: HeartbeatKind| if kind.quiet { QUIET_PIPELINE } else { PIPELINE };
            for batch in schedule.take(size, |due| self.queues.is_wanted(due)) {
                heartbeats.push(self.send(batch, echo.ask(SystemClock.now())));
            }
            tokio::select! {
                Some(outcome) = heartbeats.next() => self.take(outcome, &mut echo, &mut schedule),
                Some(()) = returns.next() => {}
                Some(()) = doubts.next() => self.queues.ask_all(),
                () = self.queues.wake.notified() => {}
                () = SystemClock.sleep_until(next.min(echo.next())) => {}
            }
        }
    }

    /// Lays a heartbeat beside the others for its server.
    fn lay(&self, schedule: &mut HeartbeatSchedule<Server, HeartbeatKind, DueHeartbeat>, due: DueHeartbeat) {
        let in_cluster = self.links.topology() == Topology::Cluster;
        let server = if in_cluster { self.links.master(&due.lock.lock) } else { None };
        let form = due.lock.form;
        // In a cluster a script has the keys of one slot.
        let quiet = due.quiet && form == Form::Text && !due.lock.shared && !in_cluster;
        schedule.add(server, HeartbeatKind { form, quiet }, DueHeartbeat { quiet, ..due });
    }

    /// Takes what a pipeline brought.
    fn take(
        &self,
        HeartbeatOutcome { server, sent_at, echo: asked, answers }: HeartbeatOutcome,
        echo: &mut Echo,
        schedule: &mut HeartbeatSchedule<Server, HeartbeatKind, DueHeartbeat>,
    ) {
        let now = SystemClock.now();
        if asked {
            match answers.first() {
                Some((_, Ok(_))) => echo.answered(now),
                _ => echo.failed(),
            }
        }
        let outcome = match answers.iter().filter(|(_, answer)| answer.is_ok()).count() {
            0 => PipelineOutcome::Failed,
            all if all == answers.len() => PipelineOutcome::Answered(now.since(sent_at)),
            _ => PipelineOutcome::InPart,
        };
        schedule.ended(&server, outcome, |due| self.queues.is_wanted(due));
        for (due, answer) in answers {
            match answer {
                Ok(None) => self.queues.stays_due(&due),
                Ok(Some(answer)) => {
                    self.queues.answered(&due, &answer);
                    self.foreign.look_out(&due.lock, answer.pause);
                }
                Err(error) => {
                    log(|| tracing::debug!(%error, "a waiter could not ask"));
                    self.queues.unanswered(&due, &error);
                }
            }
        }
    }
}

/// The number by which the reply to a short heartbeat is known.
fn number_of(some: &[DueHeartbeat]) -> String {
    some.first().map_or_else(String::new, |due| due.number.to_string())
}

/// Reads what a short heartbeat says of one lock; nothing if it has left it to a long one.
fn read_short(
    fields: &mut Fields<'_>,
    due: &DueHeartbeat,
    sent_at: BootInstant,
) -> Result<Option<HeartbeatReply>, Error> {
    let (ms, nonce) = fields.number_and_text()?;
    let nonce = &*nonce;
    let (holder, pause) = match due.holder {
        _ if ms == NOT_QUIET => return Ok(None),
        Some(holder) if ms == SAME && nonce.is_empty() => (Some(holder), holder.pause(SystemClock.now())),
        _ => {
            let pause = Pause::of(ms);
            let ends_in = if let Pause::Until(ends_in) = pause { Some(ends_in) } else { None };
            (ends_in.and_then(|ends_in| KnownHolder::new(nonce, sent_at, ends_in)), pause)
        }
    };
    let (queued, grants) = (vec![true], Vec::new());
    Ok(Some(HeartbeatReply { sent_at, known: true, pause, queued, last_token: None, holder, grants }))
}

/// The answer to a heartbeat; nothing if a short one has left it to a long one.
type HeartbeatAnswer = (DueHeartbeat, Result<Option<HeartbeatReply>, Error>);

/// The properties that heartbeats of one pipeline share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HeartbeatKind {
    form: Form,
    /// Whether they are short ones.
    quiet: bool,
}

/// The shard, in a cluster.
type Server = Option<Address>;
type Pipeline = HeartbeatBatch<Server, HeartbeatKind, DueHeartbeat>;

/// A pipeline of heartbeats that was answered, or was not.
struct HeartbeatOutcome {
    server: Server,
    sent_at: BootInstant,
    echo: bool,
    answers: Vec<HeartbeatAnswer>,
}
