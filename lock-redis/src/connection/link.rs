//! The command connection to one server: one multiplexed connection, redialled for ever.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, Phase, wait};
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Notify, watch};

use super::address::Address;
use super::dial::{Commands, Dial};
use super::former::{Former, Identity, Ledger};
use super::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::error::{self, Fate};
use crate::script::Script;

/// How many timeouts in a row make a connection suspect of being dead.
const TIMEOUTS: u32 = 2;

/// A timeout that is noticed this much too late says nothing about the connection: this process stood still, and the answer
/// may have been there in time.
const STOOD_STILL: Duration = Duration::from_millis(100);

/// A request that begins this much after its operation needs no timeout of its own.
const SLACK: Duration = Duration::from_millis(20);

/// How old a connection must be for "you can't write against a read only replica" to mean that the address has moved on
/// to another server since, so that dialling again may find that one.
const SETTLED: Duration = Duration::from_secs(1);

/// The command connection to one server.
#[derive(Debug)]
pub(crate) struct Link {
    dial: Arc<Dial>,
    ledger: Arc<Ledger>,
    /// Read by every request.
    presence: RwLock<Presence>,
    /// How many requests in a row timed out on it.
    timeouts: AtomicU32,
    last_error: Mutex<Option<(ErrorKind, String)>>,
    broken: Notify,
    closed: AtomicBool,
}

/// The present connection, and when the last one was given up.
#[derive(Debug, Default)]
struct Presence {
    live: Option<Live>,
    last_end: Option<BootInstant>,
}

/// A connection that is in use.
#[derive(Debug, Clone)]
pub(super) struct Live {
    pub(super) generation: u64,
    pub(super) server: Address,
    since: BootInstant,
    pub(super) commands: Commands,
}

/// What came back, and over which connection.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) value: Value,
    pub(crate) generation: u64,
}

impl From<Raw> for Value {
    fn from(raw: Raw) -> Self {
        raw.value
    }
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
    pub(crate) key: String,
    pub(crate) args: [String; 3],
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
    /// Connects, and keeps connected until [`close`](Link::close).
    ///
    /// # Errors
    /// If the first connection cannot be made.
    pub(crate) async fn connect(dial: Arc<Dial>) -> Result<Arc<Self>, Error> {
        let link = Self::unconnected(dial, Arc::default());
        let first = link.dial_once().await?;
        tokio::spawn(supervise(link.clone(), Some(first)));
        Ok(link)
    }

    /// Begins to connect, as one of several links with a common ledger: for a server that may be down.
    pub(crate) fn begin(dial: Arc<Dial>, ledger: Arc<Ledger>) -> Arc<Self> {
        let link = Self::unconnected(dial, ledger);
        tokio::spawn(supervise(link.clone(), None));
        link
    }

    fn unconnected(dial: Arc<Dial>, ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self {
            dial,
            ledger,
            presence: RwLock::default(),
            timeouts: AtomicU32::new(0),
            last_error: Mutex::default(),
            broken: Notify::new(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.dial.server
    }

    /// Changes with every new connection.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.ledger.made()
    }

    /// Changes when the connection was replaced.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.ledger.changes()
    }

    /// Whether of all connections since this one only the present one can still carry something out that counts.
    pub(crate) fn is_settled(&self, first: u64) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        let quiet = |live: &Live| live.generation == first || self.ledger.is_quiet(&live.server, first);
        presence.live.as_ref().is_some_and(quiet)
    }

    /// Whether of all connections that were up since then only the present one can still carry something out.
    pub(crate) fn is_settled_since(&self, at: BootInstant) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        presence.live.as_ref().is_some_and(|live| self.ledger.is_quiet_since(&live.server, at))
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.is_some()
    }

    /// Why there is no connection now, if there is none.
    pub(crate) fn outage(&self) -> Option<Error> {
        (!self.is_up()).then(|| self.down())
    }

    /// Whether there has been a connection at any time since then: if not, nothing was sent since then.
    pub(crate) fn was_up_since(&self, at: BootInstant) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        presence.live.is_some() || presence.last_end.is_some_and(|end| end >= at)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// The last error of dialling, if none comes until `until`.
    pub(crate) async fn ready(&self, until: BootInstant) -> Result<(), Error> {
        self.live(until).await.map(|_| ())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends the supervisor and the connection.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.end();
        self.broken.notify_one();
        // Whoever waits for a change finds it closed.
        self.ledger.changed();
    }

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
            Ok(_) if self.timeouts.load(Ordering::Relaxed) > 0 => self.timeouts.store(0, Ordering::Relaxed),
            Ok(_) => {}
            Err(error) => self.noted(generation, error, until),
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
            self.noted(live.generation, error, until);
        }
        let generation = live.generation;
        outcomes.into_iter().map(|outcome| outcome.map(|value| Raw { value, generation })).collect()
    }

    /// Gives up this connection, if it is still the present one: its replies cannot be trusted, or it leads to a server
    /// that is not the one that is meant any more.
    pub(crate) fn distrust(&self, generation: u64) {
        {
            let mut presence = self.presence.write().unwrap_or_else(PoisonError::into_inner);
            if presence.live.as_ref().is_none_or(|live| live.generation != generation) {
                return;
            }
            presence.end();
        }
        self.broken.notify_one();
    }

    /// Cuts the pause short if it pauses between two attempts to connect: there is reason to hope.
    pub(super) fn hurry(&self) {
        self.broken.notify_one();
    }

    /// The present connection.
    pub(super) fn present(&self) -> Option<Live> {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.clone()
    }

    /// The present connection, or the next one if it comes in time.
    pub(super) async fn live(&self, until: BootInstant) -> Result<Live, Error> {
        if let Some(live) = self.present() {
            return Ok(live);
        }
        let mut generation = self.generations();
        loop {
            // Subscribed before this look: a connection that is made after it is a change.
            if let Some(live) = self.present() {
                return Ok(live);
            }
            tokio::select! {
                biased;
                Ok(_) = generation.changed() => {}
                () = SystemClock.sleep_until(until) => return Err(self.down()),
            }
        }
    }

    /// That there is no connection, and why.
    pub(super) fn down(&self) -> Error {
        let (kind, cause) = self.last_error().clone().unwrap_or((ErrorKind::Unavailable, String::new()));
        Error::new(kind, Phase::Connect, format!("there is no connection: {cause}"))
            .with_backend(crate::NAME)
            .with_server(self.server())
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
        let outcome = if left + SLACK >= self.dial.op_timeout() {
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

    /// Has the connection replaced if this failure says that it is dead, or leads to the wrong server.
    fn noted(&self, generation: u64, error: &RedisError, until: BootInstant) {
        let Some(present) = self.present().filter(|live| live.generation == generation) else { return };
        if error.is_timeout() && SystemClock.now() > until.plus(STOOD_STILL) {
            return;
        }
        let give_up = if error.is_io_error() {
            let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
            !error.is_timeout() || timeouts >= TIMEOUTS
        } else {
            error.code() == Some("READONLY") && SystemClock.now().since(present.since) >= SETTLED
        };
        if give_up {
            self.distrust(generation);
        }
    }

    /// One attempt to connect.
    async fn dial_once(&self) -> Result<Former, Error> {
        let (server, mut commands) = self.dial.commands().await?;
        let connection = &mut commands.connection;
        self.ledger.bury(&server, connection).await;
        let identity = Identity::ask(connection).await;
        let generation = self.ledger.number();
        *self.last_error() = None;
        self.timeouts.store(0, Ordering::Relaxed);
        let live = Live { generation, server: server.clone(), since: SystemClock.now(), commands };
        self.presence.write().unwrap_or_else(PoisonError::into_inner).live = Some(live);
        self.ledger.was_made(generation);
        Ok(Former { generation, server, identity, ended_at: BootInstant::FAR_FUTURE })
    }

    fn end(&self) {
        self.presence.write().unwrap_or_else(PoisonError::into_inner).end();
    }

    fn last_error(&self) -> std::sync::MutexGuard<'_, Option<(ErrorKind, String)>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn end(&mut self) {
        if self.live.take().is_some() {
            self.last_end = Some(SystemClock.now());
        }
    }
}

/// Replaces every connection that breaks, until the link is closed.
async fn supervise(link: Arc<Link>, first: Option<Former>) {
    let mut present = match first {
        Some(first) => Some(first),
        None => redial(&link).await,
    };
    while let Some(connection) = present {
        // Also told of connections that have been replaced since.
        while let Some(live) = link.present() {
            tokio::select! {
                () = link.broken.notified() => {}
                () = live.commands.ended() => link.distrust(live.generation),
            }
        }
        link.ledger.retire(connection);
        present = redial(&link).await;
        if present.is_some() {
            link.ledger.changed();
            tracing::info!(server = link.server(), "reconnected");
        }
    }
}

/// Dials until a connection is made; `None` once the link is closed.
async fn redial(link: &Link) -> Option<Former> {
    for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
        if link.is_closed() {
            return None;
        }
        match link.dial_once().await {
            Ok(next) => {
                if link.is_closed() {
                    // Closed while it was made.
                    link.end();
                }
                return Some(next);
            }
            Err(error) => {
                tracing::debug!(server = link.server(), %error, "cannot connect");
                *link.last_error() = Some((error.kind(), error.to_string()));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = link.broken.notified() => {}
        }
    }
    None
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

pub(super) fn evaluation_of(command: &'static str, script: &str, Call { key, args }: &Call) -> Cmd {
    evaluation(command, script, &[Cow::Borrowed(key)], &args.each_ref().map(|arg| arg.as_bytes()))
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
