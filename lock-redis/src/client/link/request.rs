//! The outcomes of requests over a link, and what is rarer than one run of a script: one at once or never, and one that carries its text.

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::OwnedMutexGuard;

use super::{Link, Live, SLACK};
use crate::client::loading::Loading;
use crate::error::{self, RequestFate};
use crate::store::call::{Call, Request};
use crate::store::scripts::Script;

/// The number of times that one tells a script to a server that does not know it, while the others wait, before each does.
const TELLINGS: usize = 2;

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

    /// Runs a script that the server did not know when it was asked before: the first run carries the text, and those that
    /// come meanwhile wait for it. If the server does not know it then, it has refused the text unread, or was flushed once more: so it
    /// goes once more, before each tells it.
    pub(super) async fn tell(
        &self,
        live: &mut Live,
        request: Request<'_>,
        by_digest: &Cmd,
        asking: bool,
        until: BootInstant,
        mut before: (BootInstant, RedisResult<Value>),
    ) -> (BootInstant, RedisResult<Value>) {
        for _ in 0..TELLINGS {
            let Some(turn) = telling(&live.loading, request.script, before.0, until).await else { return before };
            let sent_at = SystemClock.now();
            if let TurnToTell::Mine(_turn) = turn {
                let by_text = request.by_text();
                let outcome = self.send(live, &by_text, asking, until).await;
                // Even if it has refused the text: it may refuse those who wait too, which they are to hear at once.
                if !outcome.as_ref().is_err_and(error::is_of_connection) {
                    live.loading.note_told(request.script, sent_at);
                }
                return (sent_at, outcome);
            }
            let outcome = self.send(live, by_digest, asking, until).await;
            if !outcome.as_ref().is_err_and(error::is_no_script) {
                return (sent_at, outcome);
            }
            before = (sent_at, outcome);
        }
        let by_text = request.by_text();
        (SystemClock.now(), self.send(live, &by_text, asking, until).await)
    }
}

/// The outcome of waiting for the turn to tell a script.
enum TurnToTell {
    /// It is this caller's, until this is dropped.
    Mine(OwnedMutexGuard<()>),
    /// Somebody else has told the script.
    Over,
}

/// Waits for the turn to tell a script that the server did not know when it was asked at `asked_at`, or to learn that it was told since;
/// `None` if neither comes in time.
async fn telling(loading: &Loading, script: &Script, asked_at: BootInstant, until: BootInstant) -> Option<TurnToTell> {
    loop {
        let left = until.since(SystemClock.now());
        if loading.was_told_since(script, asked_at) {
            return Some(TurnToTell::Over);
        }
        if left.is_zero() {
            return None;
        }
        let turn = loading.turn(script);
        match tokio::time::timeout((left / 4).max(SLACK).min(left), turn.clone().lock_owned()).await {
            Ok(_) if loading.was_told_since(script, asked_at) => return Some(TurnToTell::Over),
            Ok(mine) => return Some(TurnToTell::Mine(mine)),
            // Whoever tells it, or is next, may not be polled any more.
            Err(_) => loading.take_from(script, &turn),
        }
    }
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
