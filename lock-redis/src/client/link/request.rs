//! Requests over a link: one run of a script, or many in a pipeline.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::{Cmd, RedisError, RedisResult, Value};

use super::call::Call;
use super::live::{AwaitedReply, late};
use super::{Link, Live, NO_TIME, SendTurn};
use crate::client::dial::Commands;
use crate::error::{self, RequestFate};
use crate::store::record::MutexText;
use crate::store::scripts::Script;

/// A request that begins this much after its operation needs no timeout of its own.
pub(super) const SLACK: Duration = Duration::from_millis(20);

/// The value that came back, and the connection over which it came.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) value: Value,
    pub(crate) generation: u64,
}

/// A reply, and when its request was sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) sent_at: BootInstant,
    pub(crate) value: Raw,
}

/// One run of a script.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) script: &'a Script,
    pub(crate) keys: &'a [Cow<'a, str>],
    pub(crate) args: &'a [&'a [u8]],
    /// The text that its first key has, if all that it does is to delete that: a server that compares it needs no script.
    pub(crate) held: Option<&'a MutexText<'a>>,
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fate: RequestFate,
    pub(crate) error: Error,
    /// The key holds foreign data.
    pub(crate) wrong_type: bool,
}

/// A request that failed, and whether that was because the server did not know its script: then it is known to need the text.
#[derive(Debug)]
pub(crate) struct NotRun {
    pub(crate) failed: Failed,
    pub(crate) script_unknown: bool,
}

impl<'a> Request<'a> {
    /// A run of this script.
    pub(crate) const fn new(script: &'a Script, keys: &'a [Cow<'a, str>], args: &'a [&'a [u8]]) -> Self {
        Self { script, keys, args, held: None }
    }
}

impl Failed {
    /// Nothing was sent.
    pub(in crate::client) fn unsent(error: Error) -> Self {
        Self { fate: RequestFate::Refused, error, wrong_type: false }
    }

    /// Nothing was sent: the turn of the request did not come in time, because of this.
    pub(crate) fn no_turn(why: &'static str, phase: Phase, server: &str) -> Self {
        let error = Error::unavailable(phase, why);
        Self::unsent(error.with_backend(crate::guarantees::NAME).with_server(server))
    }

    pub(in crate::client) fn of(error: RedisError, phase: Phase, server: &str) -> Self {
        let (fate, wrong_type) = (error::fate(&error), error::is_wrong_type(&error));
        Self { fate, error: error::of_request(error, phase, server), wrong_type }
    }

    /// A copy for another request that shares its fate.
    pub(crate) fn repeated(&self, phase: Phase) -> Self {
        Self { fate: self.fate, error: error::repeated(&self.error, phase), wrong_type: self.wrong_type }
    }
}

impl Link {
    /// Runs a script on the present connection, waiting for one at most until `until`; never sends it twice.
    ///
    /// `sent` is told the connection before anything is sent, so that a caller that is dropped in the middle leaves a
    /// trace.
    pub(crate) async fn run(
        &self,
        request: Request<'_>,
        phase: Phase,
        until: BootInstant,
        sent: impl FnOnce(u64),
    ) -> Result<Reply, Failed> {
        loop {
            let live = self.live(until).await.map_err(Failed::unsent)?;
            let _turn = match live.turn(until).await {
                SendTurn::Now(turn) => turn,
                SendTurn::Ended => continue,
                SendTurn::Never(why) => return Err(Failed::no_turn(why, phase, self.server())),
            };
            sent(live.generation);
            let outcome = self.run_on(live, request, false, until).await;
            return outcome.map_err(|error| Failed::of(error, phase, self.server()));
        }
    }

    /// Runs a script on the present connection, and without one not at all: so whatever is sent afterwards on this connection is
    /// carried out afterwards. It travels with its text until the server has carried it out once over this connection.
    pub(crate) async fn run_now(
        &self,
        script: &'static Script,
        command: impl FnOnce(Text) -> Cmd,
        (phase, until): (Phase, BootInstant),
    ) -> Result<Raw, NotRun> {
        let not_run = |failed, script_unknown| NotRun { failed, script_unknown };
        let mut live = self.present().ok_or_else(|| not_run(Failed::unsent(self.down()), false))?;
        let knows = live.loading.knows(script);
        let text = if knows { Text::Never } else { Text::Once };
        let outcome = self.send(&mut live, &command(text), false, until).await;
        let script_unknown = knows && outcome.as_ref().is_err_and(error::is_no_script);
        if script_unknown || (!knows && outcome.is_ok()) {
            live.loading.set_known(script, !script_unknown);
        }
        let value = outcome.map_err(|error| not_run(Failed::of(error, phase, self.server()), script_unknown))?;
        Ok(Raw { value, generation: live.generation })
    }

    /// Runs a script on this connection; `asking` where the server is about to take the keys over.
    pub(in crate::client) async fn run_on(
        &self,
        mut live: Live,
        request: Request<'_>,
        asking: bool,
        until: BootInstant,
    ) -> RedisResult<Reply> {
        let Request { script, keys, args, held } = request;
        let mut sent_at = SystemClock.now();
        if let Some(held) = held
            && let Some(outcome) = self.compare_and_delete(&mut live, (&keys[0], held), asking, until).await
        {
            return Ok(Reply { sent_at, value: Raw { value: outcome?, generation: live.generation } });
        }
        let by_digest = evaluation("EVALSHA", &script.digest, keys, args);
        let mut outcome = self.send(&mut live, &by_digest, asking, until).await;
        if outcome.as_ref().is_err_and(error::is_no_script) {
            // A flushed or restarted server.
            let telling = self.tell(&mut live, request, &by_digest, asking, until, (sent_at, outcome));
            (sent_at, outcome) = Box::pin(telling).await;
        }
        Ok(Reply { sent_at, value: Raw { value: outcome?, generation: live.generation } })
    }

    /// Runs a script that the server did not know when it was asked before: the first run carries the text, and those that
    /// come meanwhile wait for it.
    async fn tell(
        &self,
        live: &mut Live,
        Request { script, keys, args, .. }: Request<'_>,
        by_digest: &Cmd,
        asking: bool,
        until: BootInstant,
        before: (BootInstant, RedisResult<Value>),
    ) -> (BootInstant, RedisResult<Value>) {
        let telling = live.loading.of(script);
        let left = until.since(SystemClock.now());
        let Ok(mut told) = tokio::time::timeout(left, telling.lock()).await else { return before };
        if told.is_some_and(|told_at| told_at >= before.0) {
            drop(told);
            let sent_at = SystemClock.now();
            let outcome = self.send(live, by_digest, asking, until).await;
            if !outcome.as_ref().is_err_and(error::is_no_script) {
                return (sent_at, outcome);
            }
            // Flushed once more: rare enough for each to tell it.
            let by_text = evaluation("EVAL", script.code, keys, args);
            return (SystemClock.now(), self.send(live, &by_text, asking, until).await);
        }
        let sent_at = SystemClock.now();
        let by_text = evaluation("EVAL", script.code, keys, args);
        let outcome = self.send(live, &by_text, asking, until).await;
        // Whatever else it answers, it has read the text.
        if !outcome.as_ref().is_err_and(error::is_of_connection) {
            *told = Some(sent_at);
        }
        (sent_at, outcome)
    }

    /// Runs one script for many keys in a pipeline; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        let patience = until.since(SystemClock.now());
        let live = match self.live(until).await {
            Ok(live) => live,
            Err(error) => {
                let failed = Failed::unsent(error);
                return calls.iter().map(|_| Err(failed.repeated(phase))).collect();
            }
        };
        // What is sent may be carried out, whether anybody has the time to be told so or not.
        if SystemClock.now() >= until {
            return calls.iter().map(|_| Err(Failed::no_turn(NO_TIME, phase, self.server()))).collect();
        }
        let outcomes = self.run_each_on(live, script, calls, until, patience).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(|e| Failed::of(e, phase, self.server()))).collect()
    }

    /// [`run_each`](Link::run_each) on this connection, by a caller that had `patience` in all.
    pub(in crate::client) async fn run_each_on(
        &self,
        mut live: Live,
        script: &Script,
        calls: &[Call],
        until: BootInstant,
        patience: Duration,
    ) -> Vec<RedisResult<Raw>> {
        let time = (until, patience);
        let mut outcomes = self.send_each(&mut live, script, calls, Text::Never, time).await;
        let forgotten: Vec<_> =
            (0..outcomes.len()).filter(|i| outcomes[*i].as_ref().is_err_and(error::is_no_script)).collect();
        if !forgotten.is_empty() && SystemClock.now() < until {
            let again: Vec<_> = forgotten.iter().map(|i| calls[*i].clone()).collect();
            let answers = self.send_each(&mut live, script, &again, Text::Once, time).await;
            for (i, answer) in forgotten.into_iter().zip(answers) {
                outcomes[i] = answer;
            }
        }
        let generation = live.generation;
        outcomes.into_iter().map(|outcome| outcome.map(|value| Raw { value, generation })).collect()
    }

    /// Sends one command, and draws from its answer, or from the lack of one, what that says about the connection. One that begins
    /// late, after a reconnect or a repetition, has less than an operation timeout.
    pub(super) async fn send(
        &self,
        live: &mut Live,
        command: &Cmd,
        asking: bool,
        until: BootInstant,
    ) -> RedisResult<Value> {
        let (sent_at, _awaited) = (SystemClock.now(), AwaitedReply::one_more(&live.state.awaited));
        let sending = send_one(&mut live.commands, command, asking);
        let outcome = self.in_time(sent_at, until, pin!(sending)).await;
        let outcome = self.checked_reply(live, outcome.and_then(Value::extract_error));
        self.judge(live, sent_at, until, self.op_timeout(), outcome.as_ref().err());
        outcome
    }

    /// Waits for an answer until then. The connection itself gives every command one operation timeout. What is sent is best pinned
    /// by the caller: handed on by value, it would be part of the caller's future twice.
    pub(super) async fn in_time<T>(
        &self,
        sent_at: BootInstant,
        until: BootInstant,
        sending: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let left = until.since(sent_at);
        if left + SLACK >= self.op_timeout() {
            sending.await
        } else {
            tokio::time::timeout(left, sending).await.unwrap_or_else(|_| Err(late()))
        }
    }

    /// Sends one script for many keys; all of them get the error if the pipeline fails or its time is over. However many
    /// it carried, that is one failure of the connection.
    async fn send_each(
        &self,
        live: &mut Live,
        script: &Script,
        calls: &[Call],
        text: Text,
        (until, patience): (BootInstant, Duration),
    ) -> Vec<RedisResult<Value>> {
        let (sent_at, _awaited) = (SystemClock.now(), AwaitedReply::one_more(&live.state.awaited));
        let pipeline = pipeline_of(script, calls, text);
        let sending = send_all(&mut live.commands, &pipeline, calls.len());
        let outcome = tokio::time::timeout(until.since(sent_at), sending).await.unwrap_or_else(|_| Err(late()));
        let outcomes: Vec<_> = match outcome {
            Ok(values) => values.into_iter().map(|value| self.checked_reply(live, value.extract_error())).collect(),
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        };
        self.judge(live, sent_at, until, patience, outcomes.iter().find_map(|outcome| outcome.as_ref().err()));
        outcomes
    }
}

/// Returns whole milliseconds, as Redis wants them. The rest of a TTL is less than the granularity that every lease has
/// subtracted.
pub(crate) fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// [`whole_milliseconds`] as text.
pub(crate) fn milliseconds(duration: Duration) -> String {
    whole_milliseconds(duration).to_string()
}

/// Returns whole milliseconds as text, rounded up: for a time that must not be shorter.
pub(crate) fn milliseconds_at_least(duration: Duration) -> String {
    milliseconds(duration.saturating_add(Duration::from_nanos(999_999)))
}

/// Whether a script's text travels with a run of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Text {
    /// The text is not sent: the server knows the script.
    Never,
    /// The text is sent with the first run, from which the server has it for the others.
    Once,
}

impl Text {
    /// The command that runs this script, and its first argument.
    fn command(self, script: &Script) -> (&'static str, &str) {
        match self {
            Self::Never => ("EVALSHA", &script.digest),
            Self::Once => ("EVAL", script.code),
        }
    }
}

/// The runs of one script in a pipeline.
fn pipeline_of(script: &Script, calls: &[Call], text: Text) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for (i, call) in calls.iter().enumerate() {
        pipeline.add_command(evaluation_of(script, call, if i == 0 { text } else { Text::Never }));
    }
    pipeline
}

fn evaluation(command: &'static str, script: &str, keys: &[Cow<'_, str>], args: &[&[u8]]) -> Cmd {
    let bytes = keys.iter().map(|key| key.len()).chain(args.iter().map(|arg| arg.len())).sum::<usize>();
    let mut eval = Cmd::with_capacity(3 + keys.len() + args.len(), command.len() + script.len() + 2 + bytes);
    eval.arg(command).arg(script).arg(keys.len());
    for key in keys {
        eval.arg(key.as_bytes());
    }
    for arg in args {
        eval.arg(*arg);
    }
    eval
}

pub(crate) fn evaluation_of(script: &Script, call: &Call, text: Text) -> Cmd {
    let (command, code) = text.command(script);
    let (keys, args) = (call.keys(), call.args());
    let mut eval = Cmd::with_capacity(3 + keys.len() + args.len(), command.len() + code.len() + 5 + call.len());
    eval.arg(command).arg(code).arg(keys.len());
    for part in keys.chain(args) {
        eval.arg(part);
    }
    eval
}

/// Makes one run of a script for many calls: the keys of all, and then `first`, if there is such an argument, and the arguments of all.
/// Calls that share their last key have it told once, behind the others.
pub(crate) fn evaluation_of_all<'a>(
    (script, text): (&Script, Text),
    share_last_key: bool,
    first: Option<&'a str>,
    calls: impl Iterator<Item = &'a Call> + Clone,
) -> Cmd {
    let common = if share_last_key { calls.clone().next().and_then(|call| call.keys().last()) } else { None };
    let own = |call: &Call| call.keys().len() - usize::from(common.is_some());
    let parts = |call: &Call| (own(call), call.args().len(), call.len());
    let (keys, args, bytes) = calls.clone().map(parts).fold((0, 0, 0), |(a, b, c), (x, y, z)| (a + x, b + y, c + z));
    let (command, code) = text.command(script);
    let mut eval = Cmd::with_capacity(4 + keys + args, command.len() + code.len() + 48 + bytes);
    eval.arg(command).arg(code).arg(keys + usize::from(common.is_some()));
    let keys = calls.clone().flat_map(|call| call.keys().take(own(call))).chain(common);
    for part in keys.chain(first).chain(calls.flat_map(Call::args)) {
        eval.arg(part);
    }
    eval
}

async fn send_one(commands: &mut Commands, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return commands.connection.send_packed_command(command).await;
    }
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command.clone());
    let mut values = commands.connection.send_packed_commands(&pipeline, 0, 2).await?;
    values.pop().ok_or_else(|| std::io::Error::other("no reply to a pipeline").into())
}

pub(super) async fn send_all(
    commands: &mut Commands,
    pipeline: &redis::Pipeline,
    count: usize,
) -> RedisResult<Vec<Value>> {
    let values = commands.connection.send_packed_commands(pipeline, 0, count).await?;
    if values.len() == count {
        return Ok(values);
    }
    Err(std::io::Error::other(format!("{} replies to {count} commands", values.len())).into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::address::Address;
    use crate::client::dial::{Dial, Opener};
    use crate::store::scripts::RELEASE_SHORT;
    use crate::url::Login;

    #[tokio::test]
    async fn many_runs_that_have_no_time_left_are_not_sent() {
        let started = lock_testkit_servers::redis::RedisServer::start_own().await;
        let Some(server) = lock_testkit::testing::installed(started) else { return };
        let (host, port) = server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port)).unwrap();
        let opener = Opener::new(&Login::default(), 0, None, Duration::from_secs(10)).unwrap();
        let address = Address::Tcp { host, port: port.parse().unwrap() };
        let link = Link::connect(Arc::new(Dial::to(Arc::new(opener), address))).await.unwrap();
        let calls = [Call::of(["a"]).with(["b"])];
        let outcomes = link.run_each(&RELEASE_SHORT, &calls, Phase::Renew, SystemClock.now()).await;
        let failed = outcomes.into_iter().next().unwrap().unwrap_err();
        assert_eq!((failed.fate, failed.error.what()), (RequestFate::Refused, NO_TIME), "{}", failed.error);
        link.close();
    }
}
