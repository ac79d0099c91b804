//! The command connection: one multiplexed connection, redialled for ever.
//!
//! # Order across connections
//! Commands are ordered on one connection only. An acquisition whose connection broke may still sit in the server's
//! receive buffer, and would be carried out after a release that was sent on a new connection. So a new connection's
//! first command kills its predecessor (`CLIENT KILL` by id **and** both addresses, so that the ids of a restarted server
//! cannot hit a stranger). Once that is answered, whatever the old connection carried has been carried out or never
//! will be: the new connection is *clean*, requests may be repeated on it, and one look settles a cancellation. Where
//! the user lacks the right to `CLIENT`, it is not clean, and cancellations are repeated until the lease is over.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, Phase, wait};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value, cmd};
use tokio::sync::{Notify, watch};

use super::dial::Dial;
use super::uptime;
use super::{FIRST_PAUSE, LONGEST_PAUSE};
use crate::error::{self, Fate};
use crate::script::{self, Script};

/// How many timeouts in a row make a connection suspect of being dead.
const TIMEOUTS: u32 = 2;

/// A request that begins this much after its operation needs no timeout of its own.
const SLACK: Duration = Duration::from_millis(20);

/// The command connection of one client.
#[derive(Debug)]
pub(crate) struct Link {
    dial: Arc<Dial>,
    /// A server that has been up for less is as good as down.
    min_uptime: Duration,
    /// The present connection; read by every request.
    live: RwLock<Option<Live>>,
    /// How many requests in a row timed out on it.
    timeouts: AtomicU32,
    state: Mutex<State>,
    /// Counts connections; a change wakes those who wait for one.
    generation: watch::Sender<u64>,
    broken: Notify,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Earlier connections that are not known to be dead at the server too, the oldest first.
    undead: Vec<Former>,
    /// When the last connection was given up.
    last_end: Option<BootInstant>,
    last_error: Option<(ErrorKind, String)>,
}

#[derive(Debug, Clone)]
struct Live {
    generation: u64,
    connection: MultiplexedConnection,
}

/// A reply, and when and over which connection its request was sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) sent_at: BootInstant,
    pub(crate) value: Value,
}

/// One of the runs that [`Link::run_each`] makes of a script.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) keys: [String; 2],
    pub(crate) args: [String; 2],
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fate: Fate,
    pub(crate) error: Error,
    /// The key holds foreign data.
    pub(crate) wrong_type: bool,
}

impl Link {
    /// Connects, and keeps connected until [`close`](Link::close).
    ///
    /// # Errors
    /// If the first connection cannot be made.
    pub(crate) async fn connect(dial: Arc<Dial>) -> Result<Arc<Self>, Error> {
        let link = Arc::new(Self::new(dial, Duration::ZERO));
        let first = link.dial_once().await.map_err(|error| error::of_connect(error, &link.dial.server))?;
        tokio::spawn(supervise(link.clone(), first));
        Ok(link)
    }

    /// Connects in the background, and keeps connected until [`close`](Link::close): for a server that may be down. One
    /// that has been up for less than `min_uptime` is left alone.
    pub(crate) fn start(dial: Arc<Dial>, min_uptime: Duration) -> Arc<Self> {
        let link = Arc::new(Self::new(dial, min_uptime));
        tokio::spawn({
            let link = link.clone();
            async move {
                if let Some(first) = redial(&link).await {
                    supervise(link, first).await;
                }
            }
        });
        link
    }

    fn new(dial: Arc<Dial>, min_uptime: Duration) -> Self {
        Self {
            live: RwLock::default(),
            timeouts: AtomicU32::new(0),
            state: Mutex::default(),
            generation: watch::Sender::new(0),
            broken: Notify::new(),
            closed: AtomicBool::new(false),
            dial,
            min_uptime,
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.dial.server
    }

    /// Changes with every new connection.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Whether of all connections since this one only the present one can still carry something out.
    pub(crate) fn is_settled(&self, first: u64) -> bool {
        let undead = self.state().undead.iter().any(|former| former.generation >= first);
        !undead && self.present().is_some()
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.present().is_some()
    }

    /// Why there is no connection now, if there is none.
    pub(crate) fn outage(&self) -> Option<Error> {
        (!self.is_up()).then(|| self.down())
    }

    /// Whether there has been a connection at any time since then: if not, nothing was sent since then.
    pub(crate) fn was_up_since(&self, at: BootInstant) -> bool {
        self.is_up() || self.state().last_end.is_some_and(|end| end >= at)
    }

    /// Whether of all connections that were up since then only the present one can still carry something out.
    pub(crate) fn is_settled_since(&self, at: BootInstant) -> bool {
        let undead = self.state().undead.iter().any(|former| former.ended_at >= at);
        !undead && self.is_up()
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
        self.replace(None);
        self.broken.notify_one();
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
        let live = self.live(until).await.map_err(|error| Failed { fate: Fate::Refused, error, wrong_type: false })?;
        sent(live.generation);
        self.run_on(live, script, keys, args, phase, until).await
    }

    /// As [`run`](Link::run), but without a connection it is refused at once.
    pub(crate) async fn run_now(
        &self,
        script: &Script,
        keys: &[Cow<'_, str>],
        args: &[&[u8]],
        phase: Phase,
        until: BootInstant,
    ) -> Result<Reply, Failed> {
        let live =
            self.present().ok_or_else(|| Failed { fate: Fate::Refused, error: self.down(), wrong_type: false })?;
        self.run_on(live, script, keys, args, phase, until).await
    }

    async fn run_on(
        &self,
        mut live: Live,
        script: &Script,
        keys: &[Cow<'_, str>],
        args: &[&[u8]],
        phase: Phase,
        until: BootInstant,
    ) -> Result<Reply, Failed> {
        let sent_at = SystemClock.now();
        let by_digest = evaluation("EVALSHA", &script.digest, keys, args);
        let mut outcome = self.send(&mut live.connection, &by_digest, until).await;
        let mut again = sent_at;
        if outcome.as_ref().is_err_and(error::is_no_script) {
            // A flushed or restarted server: this run carries the text, and the server keeps it.
            again = SystemClock.now();
            let by_text = evaluation("EVAL", script.code, keys, args);
            outcome = self.send(&mut live.connection, &by_text, until).await;
        }
        match outcome {
            Ok(value) => {
                if self.timeouts.load(Ordering::Relaxed) > 0 {
                    self.timeouts.store(0, Ordering::Relaxed);
                }
                Ok(Reply { sent_at: again, value })
            }
            Err(error) => {
                self.noted(live.generation, &error);
                Err(self.failed(error, phase))
            }
        }
    }

    /// Runs one script for many keys in a pipeline; one outcome for each.
    pub(crate) async fn run_each(
        &self,
        script: &Script,
        calls: &[Call],
        phase: Phase,
        until: BootInstant,
    ) -> Vec<Result<Value, Failed>> {
        let refused = |error: &Error| Failed {
            fate: Fate::Refused,
            error: Error::new(error.kind(), phase, error.to_string()),
            wrong_type: false,
        };
        let mut live = match self.live(until).await {
            Ok(live) => live,
            Err(error) => return calls.iter().map(|_| Err(refused(&error))).collect(),
        };
        let mut outcomes = self.send_each(&mut live.connection, "EVALSHA", &script.digest, calls, until).await;
        let forgotten: Vec<_> =
            (0..outcomes.len()).filter(|i| outcomes[*i].as_ref().is_err_and(error::is_no_script)).collect();
        if !forgotten.is_empty() {
            let again: Vec<_> = forgotten.iter().map(|i| calls[*i].clone()).collect();
            let answers = self.send_each(&mut live.connection, "EVAL", script.code, &again, until).await;
            for (i, answer) in forgotten.into_iter().zip(answers) {
                outcomes[i] = answer;
            }
        }
        // However many it carried, a pipeline that failed is one failure of the connection.
        if let Some(error) = outcomes.iter().find_map(|outcome| outcome.as_ref().err()) {
            self.noted(live.generation, error);
        }
        outcomes.into_iter().map(|outcome| outcome.map_err(|error| self.failed(error, phase))).collect()
    }

    /// Gives up a connection whose replies cannot be trusted.
    pub(crate) fn distrust(&self) {
        self.replace(None);
        self.broken.notify_one();
    }

    /// Sends one command. The connection itself gives every command one operation timeout; one that begins late, after a
    /// reconnect or a repetition, has less.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        command: &Cmd,
        until: BootInstant,
    ) -> RedisResult<Value> {
        let left = until.since(SystemClock.now());
        let sending = connection.send_packed_command(command);
        let outcome = if left + SLACK >= self.dial.op_timeout {
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
        connection: &mut MultiplexedConnection,
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
        tokio::time::timeout(left, send_all(connection, command, script, calls)).await.unwrap_or_else(late)
    }

    /// The present connection, or the next one if it comes in time.
    async fn live(&self, until: BootInstant) -> Result<Live, Error> {
        if let Some(live) = self.present() {
            return Ok(live);
        }
        let mut generation = self.generation.subscribe();
        loop {
            // Subscribed before this look: a connection that is made after it is a change.
            if let Some(live) = self.present() {
                return Ok(live);
            }
            tokio::select! {
                biased;
                Ok(()) = generation.changed() => {}
                () = SystemClock.sleep_until(until) => return Err(self.down()),
            }
        }
    }

    fn down(&self) -> Error {
        let (kind, cause) = self.state().last_error.clone().unwrap_or((ErrorKind::Unavailable, String::new()));
        Error::new(kind, Phase::Connect, format!("there is no connection: {cause}"))
            .with_backend(crate::NAME)
            .with_server(self.server())
    }

    /// Has the connection replaced if this failure says that it is dead.
    fn noted(&self, generation: u64, error: &RedisError) {
        let present = self.present().is_some_and(|live| live.generation == generation);
        if present && error.is_io_error() {
            let timeouts = self.timeouts.fetch_add(1, Ordering::Relaxed) + 1;
            if !error.is_timeout() || timeouts >= TIMEOUTS {
                self.replace(None);
                self.broken.notify_one();
            }
        }
    }

    fn failed(&self, error: RedisError, phase: Phase) -> Failed {
        let (fate, wrong_type) = (error::fate(&error), error::is_wrong_type(&error));
        Failed { fate, error: error::of_request(error, phase, self.server()), wrong_type }
    }

    /// One attempt to connect. The scripts are loaded in advance; a failure there only costs the first run a repetition.
    async fn dial_once(&self) -> RedisResult<Former> {
        let mut connection = self.dial.commands().await?;
        uptime::at_least(self.min_uptime, &mut connection).await?;
        let mut load = redis::pipe();
        for script in script::all() {
            load.cmd("SCRIPT").arg("LOAD").arg(script.code);
        }
        connection.send_packed_commands(&load, 0, script::all().count()).await?;
        let former = std::mem::take(&mut self.state().undead);
        let mut undead = Vec::new();
        for former in former {
            if !former.kill(&mut connection).await {
                undead.push(former);
            }
        }
        let identity = Identity::ask(&mut connection).await;
        let generation = *self.generation.borrow() + 1;
        {
            let mut state = self.state();
            undead.append(&mut state.undead);
            state.undead = undead;
            state.last_error = None;
        }
        self.replace(Some(Live { generation, connection }));
        self.generation.send_replace(generation);
        Ok(Former { generation, identity, ended_at: BootInstant::FAR_FUTURE })
    }

    fn present(&self) -> Option<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, live: Option<Live>) {
        self.timeouts.store(0, Ordering::Relaxed);
        if live.is_none() {
            self.state().last_end = Some(SystemClock.now());
        }
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every critical section leaves the state valid after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces every connection that breaks, until the link is closed.
async fn supervise(link: Arc<Link>, mut present: Former) {
    loop {
        link.broken.notified().await;
        if link.is_closed() {
            // Perhaps while the present connection was being made.
            link.replace(None);
            return;
        }
        if link.present().is_some() {
            continue; // said of a connection that has been replaced since
        }
        link.state().undead.push(Former { ended_at: SystemClock.now(), ..present });
        match redial(&link).await {
            Some(next) => present = next,
            None => return,
        }
        tracing::info!(server = link.server(), "reconnected");
    }
}

/// Dials until a connection is made; `None` once the link is closed.
async fn redial(link: &Link) -> Option<Former> {
    for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
        if link.is_closed() {
            return None;
        }
        match link.dial_once().await {
            Ok(next) => return Some(next),
            Err(error) => {
                tracing::debug!(server = link.server(), %error, "cannot connect");
                let cause = error.to_string();
                link.state().last_error = Some((error::of_connect(error, link.server()).kind(), cause));
            }
        }
        tokio::time::sleep(pause).await;
    }
    None
}

/// A connection, and by what the server knows it; `None` where the server does not tell: an old one, or a user without
/// the right.
#[derive(Debug)]
struct Former {
    generation: u64,
    /// When it was given up.
    ended_at: BootInstant,
    identity: Option<Identity>,
}

impl Former {
    /// Whether the server says that this connection is dead now.
    async fn kill(&self, connection: &mut MultiplexedConnection) -> bool {
        match &self.identity {
            Some(identity) => identity.kill(connection).await.is_ok(),
            None => false,
        }
    }
}

/// By what the server knows a connection.
#[derive(Debug)]
struct Identity {
    id: String,
    addr: String,
    laddr: String,
}

impl Identity {
    async fn ask(connection: &mut MultiplexedConnection) -> Option<Self> {
        let info: String = cmd("CLIENT").arg("INFO").query_async(connection).await.ok()?;
        let field = |name: &str| {
            info.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Self { id: field("id")?, addr: field("addr")?, laddr: field("laddr")? })
    }

    async fn kill(&self, connection: &mut MultiplexedConnection) -> RedisResult<u64> {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.addr).arg("LADDR").arg(&self.laddr);
        kill.query_async(connection).await
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

async fn send_all(
    connection: &mut MultiplexedConnection,
    command: &'static str,
    script: &str,
    calls: &[Call],
) -> Vec<RedisResult<Value>> {
    let mut pipeline = redis::pipe();
    for Call { keys, args } in calls {
        let keys = keys.each_ref().map(|key| Cow::Borrowed(&**key));
        pipeline.add_command(evaluation(command, script, &keys, &args.each_ref().map(|arg| arg.as_bytes())));
    }
    match connection.send_packed_commands(&pipeline, 0, calls.len()).await {
        Ok(values) if values.len() == calls.len() => values.into_iter().map(Value::extract_error).collect(),
        Ok(values) => {
            let what = format!("{} replies to {} commands", values.len(), calls.len());
            let error = std::io::Error::other(what);
            calls.iter().map(|_| Err(std::io::Error::other(error.to_string()).into())).collect()
        }
        Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
    }
}
