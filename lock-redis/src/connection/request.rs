//! Requests over a link: one run of a script, or many in a pipeline.

use std::borrow::Cow;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::{Cmd, RedisError, RedisResult, Value};

use super::dial::Commands;
use super::link::{LONG_SILENCE, Link, Live, TIMEOUTS};
use crate::error::{self, Fate};
use crate::script::Script;

/// A request that begins this much after its operation needs no timeout of its own.
const SLACK: Duration = Duration::from_millis(20);

/// What came back, and over which connection.
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
}

/// One of the runs that [`Link::run_each`] makes of a script.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// At least the lock's, which is the first.
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
}

impl Call {
    /// The key that says which server is asked.
    pub(super) fn key(&self) -> &str {
        self.keys.first().map_or("", String::as_str)
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fate: Fate,
    pub(crate) error: Error,
    /// The key holds foreign data.
    pub(crate) wrong_type: bool,
}

impl Failed {
    /// Nothing was sent.
    pub(super) fn unsent(error: Error) -> Self {
        Self { fate: Fate::Refused, error, wrong_type: false }
    }

    pub(super) fn of(error: RedisError, phase: Phase, server: &str) -> Self {
        let (fate, wrong_type) = (error::fate(&error), error::is_wrong_type(&error));
        Self { fate, error: error::of_request(error, phase, server), wrong_type }
    }

    /// The same for another request that shares its fate.
    pub(super) fn again(&self, phase: Phase) -> Self {
        Self::unsent(Error::new(self.error.kind(), phase, self.error.to_string()))
    }
}

impl Link {
    /// Runs a script on the present connection, waiting for one at most until `until`; never sends it twice.
    ///
    /// `sent` is told the connection before anything is sent, so that a caller that is dropped in the middle leaves a
    /// trace.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[Cow<'_, str>],
        args: &[&[u8]],
        phase: Phase,
        until: BootInstant,
        sent: impl FnOnce(u64),
    ) -> Result<Reply, Failed> {
        let live = self.live(until).await.map_err(Failed::unsent)?;
        sent(live.generation);
        let outcome = self.run_on(live, Request { script, keys, args }, false, until).await;
        outcome.map_err(|error| Failed::of(error, phase, self.server()))
    }

    /// Runs a script on the present connection, and without one not at all. It travels with its text, as one command: so
    /// whatever is sent afterwards on this connection, is carried out afterwards.
    pub(crate) async fn run_now(
        &self,
        Request { script, keys, args }: Request<'_>,
        phase: Phase,
        until: BootInstant,
    ) -> Result<Raw, Failed> {
        let mut live = self.present().ok_or_else(|| Failed::unsent(self.down()))?;
        let command = evaluation("EVAL", script.code, keys, args);
        let outcome = self.send(&mut live.commands, &command, false, until).await;
        let outcome = self.judged(live.generation, outcome, until);
        outcome.map_err(|error| Failed::of(error, phase, self.server()))
    }

    /// Runs a script on this connection; `asking` where the server is about to take the keys over.
    pub(super) async fn run_on(
        &self,
        mut live: Live,
        Request { script, keys, args }: Request<'_>,
        asking: bool,
        until: BootInstant,
    ) -> RedisResult<Reply> {
        let mut sent_at = SystemClock.now();
        let by_digest = evaluation("EVALSHA", &script.digest, keys, args);
        let mut outcome = self.send(&mut live.commands, &by_digest, asking, until).await;
        if outcome.as_ref().is_err_and(error::is_no_script) {
            // A flushed or restarted server: this run carries the text, and the server keeps it.
            sent_at = SystemClock.now();
            let by_text = evaluation("EVAL", script.code, keys, args);
            outcome = self.send(&mut live.commands, &by_text, asking, until).await;
        }
        Ok(Reply { sent_at, value: self.judged(live.generation, outcome, until)? })
    }

    /// Draws from an answer, or from its absence, what it says about the connection.
    fn judged(&self, generation: u64, outcome: RedisResult<Value>, until: BootInstant) -> RedisResult<Raw> {
        match &outcome {
            Ok(_) => self.answered(),
            Err(error) => self.failed(generation, error, until, 1),
        }
        outcome.map(|value| Raw { value, generation })
    }

    /// Runs one script for many keys in a pipeline; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Raw, Failed>> {
        let live = match self.live(until).await {
            Ok(live) => live,
            Err(error) => {
                let failed = Failed::unsent(error);
                return calls.iter().map(|_| Err(failed.again(phase))).collect();
            }
        };
        let outcomes = self.run_each_on(live, script, calls, until).await;
        outcomes.into_iter().map(|outcome| outcome.map_err(|e| Failed::of(e, phase, self.server()))).collect()
    }

    /// [`run_each`](Link::run_each) on this connection.
    pub(super) async fn run_each_on(
        &self,
        mut live: Live,
        script: &Script,
        calls: &[Call],
        until: BootInstant,
    ) -> Vec<RedisResult<Raw>> {
        let patience = until.since(SystemClock.now());
        let mut outcomes = self.send_each(&mut live.commands, "EVALSHA", &script.digest, calls, until).await;
        let forgotten: Vec<_> =
            (0..outcomes.len()).filter(|i| outcomes[*i].as_ref().is_err_and(error::is_no_script)).collect();
        if !forgotten.is_empty() {
            let again: Vec<_> = forgotten.iter().map(|i| calls[*i].clone()).collect();
            let answers = self.send_each(&mut live.commands, "EVAL", script.code, &again, until).await;
            for (i, answer) in forgotten.into_iter().zip(answers) {
                outcomes[i] = answer;
            }
        }
        // However many it carried, a pipeline that failed is one failure of the connection.
        if let Some(error) = outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
            // Leases have no time for a second silence as long as this one.
            let counts = if patience >= LONG_SILENCE { TIMEOUTS } else { 1 };
            self.failed(live.generation, error, until, counts);
        }
        let generation = live.generation;
        outcomes.into_iter().map(|outcome| outcome.map(|value| Raw { value, generation })).collect()
    }

    /// Sends one command. The connection itself gives every command one operation timeout; one that begins late, after a
    /// reconnect or a repetition, has less.
    async fn send(
        &self,
        commands: &mut Commands,
        command: &Cmd,
        asking: bool,
        until: BootInstant,
    ) -> RedisResult<Value> {
        let left = until.since(SystemClock.now());
        let sending = send_one(commands, command, asking);
        let outcome = if left + SLACK >= self.op_timeout() {
            sending.await
        } else {
            let late = |_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            tokio::time::timeout(left, sending).await.unwrap_or_else(late)
        };
        outcome.and_then(Value::extract_error)
    }

    /// Sends one script for many keys; all of them get the error if the pipeline fails or its time is over.
    async fn send_each(
        &self,
        commands: &mut Commands,
        command: &'static str,
        script: &str,
        calls: &[Call],
        until: BootInstant,
    ) -> Vec<RedisResult<Value>> {
        let left = until.since(SystemClock.now());
        let late = |_| {
            let late = || Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            calls.iter().map(|_| late()).collect()
        };
        tokio::time::timeout(left, send_all(commands, command, script, calls)).await.unwrap_or_else(late)
    }
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

pub(super) fn evaluation_of(command: &'static str, script: &str, Call { keys, args }: &Call) -> Cmd {
    let keys: Vec<_> = keys.iter().map(|key| Cow::Borrowed(&**key)).collect();
    let args: Vec<_> = args.iter().map(String::as_bytes).collect();
    evaluation(command, script, &keys, &args)
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

async fn send_all(
    commands: &mut Commands,
    command: &'static str,
    script: &str,
    calls: &[Call],
) -> Vec<RedisResult<Value>> {
    let mut pipeline = redis::pipe();
    for call in calls {
        pipeline.add_command(evaluation_of(command, script, call));
    }
    match commands.connection.send_packed_commands(&pipeline, 0, calls.len()).await {
        Ok(values) if values.len() == calls.len() => values.into_iter().map(Value::extract_error).collect(),
        Ok(values) => {
            let what = format!("{} replies to {} commands", values.len(), calls.len());
            let error = std::io::Error::other(what);
            calls.iter().map(|_| Err(std::io::Error::other(error.to_string()).into())).collect()
        }
        Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
    }
}
