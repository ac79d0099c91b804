//! The one task that asks for all locks on which a client waits: its sign of life, and what brings back lost pushes.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId, Phase};

use crate::backend::Shared;
use crate::connection::address::Address;
use crate::connection::request::{Call, Failed, Raw};
use crate::dialect::Form;
use crate::keys::Keys;
use crate::queue::{Answer, Due, Echo, Pause};
use crate::script;
use crate::topology::Topology;

/// The pokes that one pipeline carries, and the pipelines that are on their way, at most.
const PIPELINE: usize = 128;
const MOST_PIPELINES: usize = 16;
/// The locks that a short poke is for, at most: its script holds the server for half a millisecond at most.
const PEEKS: usize = 64;
/// The answer of `scripts/mutex/peek.lua` for a lock that is for a long poke.
const NOT_QUIET: i64 = -5;

impl Shared {
    /// Gives back what a waiter that gave up was granted all the same. Best effort: the claim time ends it otherwise.
    async fn give_up(&self, nonce: GrantId, keys: &Keys) {
        let nonce = nonce.to_string();
        // Asked for in nobody's name, so that a next holder of this client is told by push too.
        let args = [nonce.as_bytes(), b"", self.channels.as_bytes(), keys.shared_arg()];
        if let Err(error) = self.run_once(&keys.scripts().cancel, keys, &args, Phase::Cancel).await {
            tracing::debug!(%error, "an unwanted grant could not be given back");
        }
    }

    /// Sends pokes of one form as one pipeline. With `echo`, the first asks for an echo.
    async fn poke(&self, Batch { form, quiet, due, echo, until, .. }: Batch) -> Poked {
        let sent_at = SystemClock.now();
        if quiet {
            return Poked { sent_at, echo, answers: self.peek(due, sent_at, echo, until).await };
        }
        let calls: Vec<_> = due.iter().enumerate().map(|(i, due)| self.call(due, echo && i == 0)).collect();
        let outcomes = self.link.run_each(&form.scripts().poke, &calls, Phase::Wait, until).await;
        let read = |(due, outcome): (Due, Result<Raw, Failed>)| {
            let answer = outcome.map_err(|failed| failed.error).and_then(|raw| self.read(&due, sent_at, raw));
            (due, answer.map(Some))
        };
        Poked { sent_at, echo, answers: due.into_iter().zip(outcomes).map(read).collect() }
    }

    /// The usual sign of life at many locks, some of them in each run of a script.
    async fn peek(&self, due: Vec<Due>, sent_at: BootInstant, echo: bool, until: BootInstant) -> Vec<Outcome> {
        let call = |(i, some): (usize, &[Due])| {
            let echo = if echo && i == 0 { "1" } else { "" };
            let first = [&*self.client, &self.channels, &number_of(some), echo].map(str::to_owned);
            let nonces = some.iter().map(|due| due.nonces.first().map_or_else(String::new, GrantId::to_string));
            let keys = some.iter().flat_map(|due| due.keys.to_peek().map(Cow::into_owned)).collect();
            Call { keys, args: first.into_iter().chain(nonces).collect() }
        };
        let calls: Vec<_> = due.chunks(PEEKS).enumerate().map(call).collect();
        let outcomes = self.link.run_each(&script::PEEK, &calls, Phase::Wait, until).await;
        let mut answers = Vec::with_capacity(due.len());
        let mut due = due.into_iter();
        for outcome in outcomes {
            let some: Vec<_> = due.by_ref().take(PEEKS).collect();
            let read = outcome.map_err(|failed| failed.error).and_then(|raw| {
                let mut fields = self.fields(raw, &number_of(&some), Phase::Wait)?;
                some.iter().map(|_| fields.number()).collect::<Result<Vec<_>, _>>()
            });
            match read {
                Ok(pauses) => answers.extend(some.into_iter().zip(pauses).map(|(due, ms)| {
                    let (pause, grants) = (Pause::of(ms), Vec::new());
                    let queued = vec![true];
                    let answer = Answer { sent_at, known: true, pause, queued, last_token: None, grants };
                    (due, Ok((ms != NOT_QUIET).then_some(answer)))
                })),
                Err(error) => {
                    let again = |due| (due, Err(Error::new(error.kind(), Phase::Wait, error.to_string())));
                    answers.extend(some.into_iter().map(again));
                }
            }
        }
        answers
    }

    fn call(&self, due: &Due, echo: bool) -> Call {
        let echo = if echo { "1" } else { "" };
        let shared = if due.keys.shared { "1" } else { "" };
        let first = [&self.client, &self.channels, shared, &due.number.to_string(), echo].map(str::to_owned);
        let args = first.into_iter().chain(due.nonces.iter().map(GrantId::to_string)).collect();
        Call { keys: due.keys.all().map(Cow::into_owned).into(), args }
    }

    fn read(&self, due: &Due, sent_at: BootInstant, raw: Raw) -> Result<Answer, Error> {
        let mut fields = self.fields(raw, &due.number.to_string(), Phase::Wait)?;
        let known = fields.number()? == 1;
        let pause = Pause::of(fields.number()?);
        let queued = fields.text()?.bytes().map(|digit| digit == b'1').collect();
        let last_token = u64::try_from(fields.number()?).ok();
        Ok(Answer { sent_at, known, pause, queued, last_token, grants: fields.grants()? })
    }
}

/// By which the reply to a short poke is known.
fn number_of(some: &[Due]) -> String {
    some.first().map_or_else(String::new, |due| due.number.to_string())
}

/// The outcome of a poke; nothing if a short one has left it to a long one.
type Outcome = (Due, Result<Option<Answer>, Error>);

/// Pokes for one pipeline.
struct Batch {
    form: Form,
    /// Whether they are short ones.
    quiet: bool,
    /// The shard, in a cluster.
    server: Option<Address>,
    due: Vec<Due>,
    echo: bool,
    until: BootInstant,
}

/// A pipeline of pokes that was answered, or was not.
struct Poked {
    sent_at: BootInstant,
    echo: bool,
    answers: Vec<Outcome>,
}

/// The time for the answer to a poke. A poke that gets none says that its connection is dead: so it has nearly as long as
/// any other request, and with the usual operation timeout of 2 s a dead connection is noticed soon enough to cost no
/// living waiter its turn, which it keeps for 3 s without a sign. Where the way is long, there must be time for an answer.
struct Limit {
    now: Duration,
    shortest: Duration,
    longest: Duration,
}

impl Limit {
    const SHORTEST: Duration = Duration::from_secs(1);

    fn new(op_timeout: Duration) -> Self {
        let shortest = (op_timeout / 4 * 3).max(Self::SHORTEST).min(op_timeout);
        Self { now: shortest, shortest, longest: op_timeout }
    }

    /// An answer took so long.
    fn answered(&mut self, took: Duration) {
        self.now = (2 * took).max(self.shortest).min(self.longest);
    }

    /// There was none in time.
    fn failed(&mut self) {
        self.now = (2 * self.now).min(self.longest);
    }
}

/// The one task that asks for all locks on which this client waits.
pub(crate) async fn for_ever(shared: Arc<Shared>) {
    let mut pokes = FuturesUnordered::new();
    let mut returns = FuturesUnordered::new();
    let mut changes = shared.link.changes();
    let (mut echo, mut limit) = (Echo::default(), Limit::new(shared.op_timeout));
    while !shared.link.is_closed() {
        let room = MOST_PIPELINES.saturating_sub(pokes.len());
        let (due, next) = shared.waiters.due(room * PIPELINE);
        // With no room, an answer is waited for first.
        let next = if room == 0 { BootInstant::FAR_FUTURE } else { next };
        // One that is being replaced already is left alone.
        if echo.is_missing(SystemClock.now(), shared.push.heard_at()) && shared.push.is_up() {
            tracing::info!(server = shared.link.server(), "no pushes arrive; subscribing anew");
            shared.push.distrust();
        }
        for (nonce, keys) in shared.waiters.unwanted() {
            let shared = &shared;
            returns.push(async move { shared.give_up(nonce, &keys).await });
        }
        for batch in batches(&shared, due, &mut echo, limit.now) {
            pokes.push(shared.poke(batch));
        }
        tokio::select! {
            Some(poked) = pokes.next() => take(&shared, poked, &mut echo, &mut limit),
            Some(()) = returns.next() => {}
            Ok(()) = changes.changed() => shared.waiters.ask_all(),
            () = shared.waiters.wake.notified() => {}
            () = SystemClock.sleep_until(next.min(echo.next())) => {}
        }
    }
}

/// Pipelines of pokes, each for locks of one form at one server.
fn batches(shared: &Shared, due: Vec<Due>, echo: &mut Echo, limit: Duration) -> Vec<Batch> {
    let (mut batches, now) = (Vec::<Batch>::new(), SystemClock.now());
    let in_cluster = shared.link.topology() == Topology::Cluster;
    for due in due {
        let form = due.keys.form;
        // A shard that is away is not to hold up what the others answer.
        let server = if in_cluster { shared.link.master(&due.keys.lock) } else { None };
        // In a cluster a script has the keys of one slot.
        let quiet = due.quiet && form == Form::Text && !due.keys.shared && !in_cluster;
        let due = Due { quiet, ..due };
        let most = if quiet { PIPELINE * 4 } else { PIPELINE };
        let fits = |batch: &&mut Batch| {
            batch.form == form && batch.quiet == quiet && batch.server == server && batch.due.len() < most
        };
        match batches.iter_mut().find(fits) {
            Some(batch) => batch.due.push(due),
            None => {
                let (due, echo, until) = (vec![due], echo.ask(now), now.plus(limit));
                batches.push(Batch { form, quiet, server, due, echo, until });
            }
        }
    }
    batches
}

/// Takes what a pipeline brought.
fn take(shared: &Shared, Poked { sent_at, echo: asked, answers }: Poked, echo: &mut Echo, limit: &mut Limit) {
    let now = SystemClock.now();
    if asked {
        match answers.first() {
            Some((_, Ok(_))) => echo.answered(now),
            _ => echo.failed(),
        }
    }
    match answers.iter().filter(|(_, answer)| answer.is_ok()).count() {
        0 => limit.failed(),
        all if all == answers.len() => limit.answered(now.since(sent_at)),
        _ => {}
    }
    for (due, answer) in answers {
        match answer {
            Ok(None) => shared.waiters.is_not_quiet(&due),
            Ok(Some(answer)) => {
                shared.waiters.answered(&due, &answer);
                shared.look_out(&due.keys, answer.pause);
            }
            Err(error) => {
                tracing::debug!(%error, "a waiter could not ask");
                shared.waiters.unanswered(&due, &error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poke_has_most_of_an_operation_timeout_and_all_of_it_where_answers_take_longer() {
        let seconds = Duration::from_secs_f64;
        let mut limit = Limit::new(seconds(2.0));
        assert_eq!(limit.now, seconds(1.5));
        limit.failed();
        assert_eq!(limit.now, seconds(2.0));
        limit.answered(seconds(0.9));
        assert_eq!(limit.now, seconds(1.8));
        limit.answered(seconds(0.01));
        assert_eq!(limit.now, seconds(1.5));
        assert_eq!(Limit::new(seconds(10.0)).now, seconds(7.5));
        let mut short = Limit::new(seconds(0.5));
        short.answered(seconds(0.4));
        assert_eq!(short.now, seconds(0.5));
    }
}
