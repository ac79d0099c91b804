//! The command connection to one server: one multiplexed connection, redialled for ever. What is sent over it is in
//! [`request`].

pub(crate) mod batches;
pub(crate) mod call;
mod compare;
mod live;
pub(crate) mod request;
mod supervisor;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::Doubts;
use lock_core::{Error, ErrorKind, Phase};
use redis::RedisError;
use tokio::sync::{Notify, watch};

use crate::client::dial::Dial;
use crate::client::predecessors::Predecessors;
use crate::error;
use batches::Batches;
pub(crate) use live::{CROWDED, NO_TIME};
pub(in crate::client) use live::{Live, SendTurn};

/// The age that a connection must have for "you can't write against a read only replica" to mean that the address has moved on
/// to another server since, so that dialling again may find that one.
const SETTLED: Duration = Duration::from_secs(1);

/// The command connection to one server.
#[derive(Debug)]
pub(crate) struct Link {
    dial: Arc<Dial>,
    op_timeout: Duration,
    predecessors: Arc<Predecessors>,
    /// Read by every request.
    presence: RwLock<Presence>,
    last_error: Mutex<Option<Error>>,
    broken: Notify,
    /// The news that there is reason to dial without a pause.
    hurried: Notify,
    closed: AtomicBool,
    /// The callers whose requests are on their way, or wait to be.
    callers: AtomicUsize,
    batches: Batches,
}

/// The present connection, and when the last one was given up.
#[derive(Debug, Default)]
struct Presence {
    live: Option<Live>,
    last_end: Option<BootInstant>,
    /// The number of the last connection there was.
    newest: u64,
}

/// A caller of a link, for as long as its request takes.
#[derive(Debug)]
pub(crate) struct Caller<'a> {
    pub(in crate::client) link: &'a Arc<Link>,
    /// Whether somebody else asks.
    pub(crate) has_company: bool,
}

impl Link {
    /// Connects, and keeps connected until [`close`](Link::close).
    ///
    /// # Errors
    /// If the first connection cannot be made.
    pub(crate) async fn connect(dial: Arc<Dial>) -> Result<Arc<Self>, Error> {
        let link = Self::unconnected(dial, Arc::default());
        let first = link.dial_once().await?;
        link.keep_up(Some(first));
        Ok(link)
    }

    /// Begins to connect, as one of several links with common predecessors: for a server that may be down.
    pub(crate) fn begin(dial: Arc<Dial>, predecessors: Arc<Predecessors>) -> Arc<Self> {
        let link = Self::unconnected(dial, predecessors);
        link.keep_up(None);
        link
    }

    fn unconnected(dial: Arc<Dial>, predecessors: Arc<Predecessors>) -> Arc<Self> {
        Arc::new(Self {
            op_timeout: dial.op_timeout(),
            dial,
            predecessors,
            presence: RwLock::default(),
            last_error: Mutex::default(),
            broken: Notify::new(),
            hurried: Notify::new(),
            closed: AtomicBool::new(false),
            callers: AtomicUsize::new(0),
            batches: Batches::new(),
        })
    }

    pub(crate) fn server(&self) -> &str {
        &self.dial.server
    }

    /// Counts a caller.
    pub(in crate::client) fn caller(self: &Arc<Self>) -> Caller<'_> {
        let others = self.callers.fetch_add(1, Ordering::Relaxed);
        Caller { link: self, has_company: others > 0 }
    }

    pub(in crate::client) fn op_timeout(&self) -> Duration {
        self.op_timeout
    }

    /// Changes with every new connection.
    pub(crate) fn generations(&self) -> watch::Receiver<u64> {
        self.predecessors.made()
    }

    /// The occasions on which the connection was replaced.
    pub(in crate::client) fn doubts(&self) -> Doubts {
        self.predecessors.doubts()
    }

    /// Whether nothing sent over connection `first` or a later one can still take effect, except over the present one. Without a present
    /// connection: whether there was none since `first`.
    pub(crate) fn is_settled(&self, first: u64) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        match &presence.live {
            Some(live) => live.generation == first || self.predecessors.none_in_flight(&live.server, first),
            None => presence.newest < first,
        }
    }

    /// Whether nothing sent over a connection that was up since `at` can still be carried out, except over the present one; false without
    /// one.
    pub(crate) fn is_settled_since(&self, at: BootInstant) -> bool {
        let presence = self.presence.read().unwrap_or_else(PoisonError::into_inner);
        presence.live.as_ref().is_some_and(|live| self.predecessors.none_in_flight_since(&live.server, at))
    }

    /// Takes note of a lease that is about to be asked for.
    pub(crate) fn note_lease(&self, ttl: Duration) {
        self.predecessors.note_lease(ttl);
    }

    /// Whether there is a connection now.
    pub(crate) fn is_up(&self) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.is_some()
    }

    /// The reason why there is no connection now, if there is none.
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
        self.hurried.notify_one();
        // Whoever waits for a change finds it closed.
        self.predecessors.changed();
    }

    /// Gives up this connection, if it is still the present one: it is broken, or leads to a server that is not the one that
    /// is meant any more. Replies that are on their way still come.
    pub(crate) fn distrust(&self, generation: u64) {
        self.end_this(generation);
    }

    /// Gives up this connection at once, without the replies that it owes: its replies reach the wrong requests.
    pub(in crate::client) fn give_up(&self, live: &Live) {
        self.end_this(live.generation);
        live.commands.abort();
    }

    /// Gives up the present connection as [`give_up`](Self::give_up) does, if it is this one.
    pub(crate) fn give_up_present(&self, generation: u64) {
        if let Some(live) = self.end_this(generation) {
            live.commands.abort();
        }
    }

    fn end_this(&self, generation: u64) -> Option<Live> {
        let ended = {
            let mut presence = self.presence.write().unwrap_or_else(PoisonError::into_inner);
            presence.live.as_ref().filter(|live| live.generation == generation)?;
            presence.end()
        };
        self.broken.notify_one();
        ended
    }

    /// Cuts the pause short if it pauses between two attempts to connect: there is reason to hope.
    pub(in crate::client) fn hurry(&self) {
        self.hurried.notify_one();
    }

    /// Looks at the present connection; false if there is none.
    fn with_present(&self, look: impl FnOnce(&Live) -> bool) -> bool {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.as_ref().is_some_and(look)
    }

    /// The present connection.
    pub(in crate::client) fn present(&self) -> Option<Live> {
        self.presence.read().unwrap_or_else(PoisonError::into_inner).live.clone()
    }

    /// The present connection, or the next one if it comes in time.
    pub(in crate::client) async fn live(&self, until: BootInstant) -> Result<Live, Error> {
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

    /// The error that there is no connection, and why.
    pub(in crate::client) fn down(&self) -> Error {
        let down = |kind, why: &str| {
            let down = Error::new(kind, Phase::Connect, format!("there is no connection: {why}"));
            down.with_backend(crate::guarantees::NAME).with_server(self.server())
        };
        match &*self.last_error() {
            Some(last) => error::with_cause_of(down(last.kind(), last.what()), last),
            None => down(ErrorKind::Unavailable, "it is being made"),
        }
    }

    /// Takes note of an answer, or of what came instead, to a request over this connection that had `patience` in all;
    /// gives the connection up if that says that it is dead, or leads to the wrong server.
    pub(in crate::client) fn judge(
        &self,
        live: &Live,
        sent_at: BootInstant,
        until: BootInstant,
        patience: Duration,
        failure: Option<&RedisError>,
    ) {
        let now = SystemClock.now();
        let Some(error) = failure.filter(|error| error::is_of_connection(error)) else {
            live.pulse().answered(sent_at, now);
            let is_astray = failure.is_some_and(|error| error::code(error) == Some("READONLY"));
            if is_astray && now.since(live.since) >= SETTLED {
                self.distrust(live.generation);
            }
            return;
        };
        if !error.is_timeout() {
            self.distrust(live.generation);
        } else if live.pulse().is_dead(sent_at, until, patience, now) {
            self.distrust(live.generation);
            // Whoever waits for an answer of it waits for nothing.
            live.commands.abort();
        }
    }

    fn end(&self) {
        self.presence.write().unwrap_or_else(PoisonError::into_inner).end();
    }

    fn last_error(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.link.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Presence {
    /// Ends the present connection, if there is one.
    fn end(&mut self) -> Option<Live> {
        let live = self.live.take()?;
        self.last_end = Some(SystemClock.now());
        // Those that wait for their turn go on with the next connection.
        live.turns.close();
        Some(live)
    }
}
