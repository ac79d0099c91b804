//! One session, shared by all locks of a client: until when it may be believed in, and what its link is doing.
//!
//! [`lease`] is the rule by which a session is believed in, [`manager`] the one task that keeps a session alive and
//! replaces one that has ended, [`poll`] how often its waiters look around, [`watched`] what they watch.
//!
//! Every lock of a client depends on its session. A grant is valid for its TTL or for the rest of the session, whichever is less; the core
//! asks for the rest in time (`docs/decisions/0013-a-lease-may-be-kept-in-parts.md`). The end of a session is announced to every
//! holder by [`Backend::notices`](lock_core::driver::Backend::notices); waiters notice it by themselves and enter the queue again.

pub(crate) mod lease;
mod manager;
mod poll;
#[cfg(test)]
mod remaining;
mod watched;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Attempt, Grant, wait};
use lock_core::{Error, ErrorKind, FencingToken, Phase};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout_at};

use crate::client::{Connection, Fate, Refusal};
use crate::error::{self, StepError};
use lease::SessionLease;
use poll::Pollers;
use watched::WatchedNodes;

pub(crate) use manager::SessionOptions;
pub(crate) use poll::Poller;
pub(crate) use watched::NodeWatch;

/// The number of bytes of paths that a session watches at once: beyond 128 KiB the client crate cannot restore the watches
/// after a reconnection, and loses the session. About 1,500 locks with short names.
pub(crate) const WATCHABLE: usize = 120 * 1024;

/// The pause between looks of a waiter that may not watch, unless too many wait.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The state of a client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// A server answers.
    Connected,
    /// No server is reached. What is held stays held while [`is_held`](lock_core::Lease::is_held) says so; nothing new
    /// is granted.
    Suspended,
    /// The session is lost with what it held, and a new one is being opened.
    Lost,
}

/// Called with each session that ended.
pub(crate) type OnSessionEnd = Box<dyn Fn(&Arc<Session>) + Send + Sync>;

/// Acquires locks within one session.
pub(crate) trait SessionAcquirer: Sync {
    /// Tries once.
    fn try_in(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Option<Grant>, StepError>> + Send;

    /// Waits until granted, and tells by the sender that somebody else was before.
    fn wait_in(
        &self,
        session: &Arc<Session>,
        attempt: &Attempt,
        refused: &watch::Sender<bool>,
    ) -> impl Future<Output = Result<Grant, StepError>> + Send;
}

/// The sessions of one client, one at a time. Dropping this ends the last one.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: watch::Receiver<Option<Arc<Session>>>,
    status: watch::Receiver<SessionStatus>,
    /// Whether there is no session any more, and never will be. Beside the status, which is news at every heartbeat.
    closed: watch::Receiver<bool>,
    /// Closed when this is dropped.
    alive: watch::Sender<()>,
}

/// The news of the task beside the session itself.
#[derive(Debug, Clone)]
struct SessionStatus {
    state: SessionState,
    /// The instant until which everything was answered; beyond that while the session is connected.
    answered_until: BootInstant,
    /// The refusal of the last try to open a session, while there is none.
    refusal: Option<Refusal>,
}

impl Sessions {
    /// Opens the first session and starts the task that keeps it. `on_end` is called with each session that ended, before a new
    /// one is opened.
    pub(crate) async fn open(options: SessionOptions, on_end: OnSessionEnd) -> Result<Self, Error> {
        manager::start(options, on_end).await
    }

    /// Returns the present session, or the next one if there is none at present.
    ///
    /// # Cancel safety
    /// Waits only.
    pub(crate) async fn current(&self) -> Arc<Session> {
        let mut current = self.current.clone();
        loop {
            let session = current.borrow_and_update().clone();
            if let Some(session) = session
                && !session.is_over()
            {
                return session;
            }
            if current.changed().await.is_err() {
                // The runtime of the task is gone: there will be no session any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Asks the present session, or the next one if there is none: all within one operation timeout.
    ///
    /// # Errors
    /// Those of [`error::no_session`] if there was none in time: nothing was sent then.
    pub(crate) async fn request<T>(
        &self,
        attempt: &Attempt,
        phase: Phase,
        ask: impl AsyncFnOnce(&Arc<Session>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + attempt.op_timeout;
        let session = self.current_by(until, phase).await.map_err(|error| error.with_name(&attempt.name))?;
        let answer = async {
            tokio::select! {
                biased;
                answer = ask(&session) => answer,
                // By our clock: what was asked for may be there until the servers think so, too.
                () = session.ended() => Err(error::out_of_time(phase)),
            }
        };
        timeout_at(until, answer).await.unwrap_or_else(|_| {
            Err(attempt.error(ErrorKind::Indeterminate, phase, "no answer within the operation timeout"))
        })
    }

    /// Waits in the present session, and in each that follows it, until granted. Notes when something may have been asked for.
    ///
    /// A refusal is definite in the first of them only: the servers may have the node of a former one until they think that it is
    /// over, too.
    pub(crate) async fn wait_granted(
        &self,
        attempt: &Attempt,
        acquirer: &impl SessionAcquirer,
        asked: &AtomicBool,
        refused: &watch::Sender<bool>,
    ) -> Result<Grant, Error> {
        loop {
            let session = self.current().await;
            let waited_before = asked.swap(true, Ordering::AcqRel);
            let outcome = tokio::select! {
                biased;
                outcome = acquirer.wait_in(&session, attempt, refused) => outcome,
                () = session.ended() => continue,
            };
            match outcome {
                Err(failure) if failure.is(Fate::Ended) => session.ended().await,
                Err(failure) if waited_before => {
                    let what = "a session ended while it waited, and the next one was refused";
                    let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, what);
                    return Err(error.with_source(failure.error(Phase::Wait)));
                }
                outcome => return outcome.map_err(|failure| failure.error(Phase::Wait)),
            }
        }
    }

    /// Returns the error of a wait that has ended without an answer, after something was asked for or before.
    pub(crate) fn unanswered(&self, attempt: &Attempt, asked: &AtomicBool) -> Error {
        if asked.load(Ordering::Acquire) {
            // A node was asked for, and may be there: also one of a session that is over by our clock only.
            let is_closed = self.closed().now_or_never().is_some();
            let what = if is_closed { "the client's session is closed" } else { "the servers do not answer" };
            let error = attempt.error(ErrorKind::Indeterminate, Phase::Wait, what);
            return self.because_of_refusal(error);
        }
        self.no_session(Phase::Wait).with_name(&attempt.name)
    }

    /// Returns the present session, or the next one if that comes before this instant.
    ///
    /// # Errors
    /// Those of [`no_session`](Sessions::no_session).
    pub(crate) async fn current_by(&self, until: Instant, phase: Phase) -> Result<Arc<Session>, Error> {
        tokio::select! {
            biased;
            session = self.current() => Ok(session),
            () = self.closed() => Err(self.no_session(phase)),
            () = tokio::time::sleep_until(until) => Err(self.no_session(phase)),
        }
    }

    /// Returns the error of a request that was not sent, because there is no session.
    pub(crate) fn no_session(&self, phase: Phase) -> Error {
        if self.closed().now_or_never().is_some() {
            let what = "the client's session is closed";
            return Error::new(ErrorKind::Closed, phase, what).with_backend(crate::guarantees::NAME);
        }
        error::no_session(phase, self.refusal())
    }

    /// Returns the state of the session at this instant.
    pub(crate) fn state(&self) -> SessionState {
        self.status.borrow().state
    }

    /// Returns the timeout of the present session: the servers keep what it has for so long when they hear nothing of it.
    pub(crate) fn timeout(&self) -> Duration {
        self.current.borrow().as_ref().map_or(Duration::ZERO, |session| session.connection.timeout())
    }

    /// Closes the session: whoever holds or waits by it is told, and no other one is opened. Returns when the servers have
    /// confirmed it, or no server is reached any more.
    ///
    /// # Errors
    /// `Indeterminate` if neither was so within this time.
    ///
    /// # Cancel safety
    /// The session is closed although the future was dropped.
    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.alive.send_replace(());
        tokio::time::timeout(limit, self.closed()).await.map_err(|_| {
            let what = "no server has confirmed within the operation timeout that the session is closed";
            Error::indeterminate(Phase::Release, what).with_backend(crate::guarantees::NAME)
        })
    }

    /// Resolves when there is no session any more, and never will be: the client is closed, or the runtime of its task is gone.
    pub(crate) async fn closed(&self) {
        // Without its task there is none, either.
        let _ = self.closed.clone().wait_for(|closed| *closed).await;
    }

    /// Adds to an error why there is no session, if the last try to open one was refused.
    fn because_of_refusal(&self, error: Error) -> Error {
        match self.refusal() {
            Some(refusal) => error.with_source(error::no_session(Phase::Connect, Some(refusal))),
            None => error,
        }
    }

    /// Returns the refusal of the last try to open a session; `None` while there is one.
    fn refusal(&self) -> Option<Refusal> {
        self.status.borrow().refusal.clone()
    }

    /// Resolves when something has been without an answer for this long, counted from now at the earliest. While this process itself
    /// stood still nobody could have answered it: that counts from its end.
    pub(crate) async fn silence(&self, patience: Duration) {
        let mut since = SystemClock.now();
        loop {
            let due = since.plus(patience);
            SystemClock.sleep_until(due).await;
            let now = SystemClock.now();
            if wait::stood_still(due, now) {
                since = now;
                continue;
            }
            let answered_until = self.answered_until();
            if answered_until <= since {
                return;
            }
            since = answered_until;
        }
    }

    /// Returns the instant until which everything that was asked has been answered.
    fn answered_until(&self) -> BootInstant {
        let session = self.current.borrow().clone();
        match session {
            // The task that replaces one that is over may not run any more: such a one answers nothing.
            Some(session) if session.is_connected() && !session.is_over() => session.answered_until(SystemClock.now()),
            _ => self.status.borrow().answered_until,
        }
    }
}

/// One session, from its connection to its end.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Arc<dyn Connection>,
    lease: Mutex<SessionLease>,
    suspended: AtomicBool,
    over: watch::Sender<bool>,
    /// Bytes of paths that may be watched yet.
    watchable: Semaphore,
    watched: WatchedNodes,
    pub(crate) pollers: Pollers,
    /// The length by which a path is longer at the servers than here.
    chroot: usize,
}

impl Session {
    fn new(connection: Arc<dyn Connection>, tick: Duration, chroot: usize) -> Arc<Self> {
        let lease = SessionLease::new(connection.asked_at(), connection.timeout(), tick);
        Arc::new(Self {
            connection,
            lease: Mutex::new(lease),
            suspended: AtomicBool::new(false),
            over: watch::Sender::new(false),
            watchable: Semaphore::new(WATCHABLE),
            watched: WatchedNodes::default(),
            pollers: Pollers::default(),
            chroot,
        })
    }

    /// Returns for how long the session may be believed in from `now` on, if it does not move on; `None` once it is over.
    pub(crate) fn left(&self, now: BootInstant) -> Option<Duration> {
        let mut lease = self.lease();
        (!lease.is_over(now)).then(|| lease.end().since(now))
    }

    /// Returns for how long from `start` on, which has passed, the session may be believed in; `None` once it is over.
    fn lasts_from(&self, start: BootInstant) -> Option<Duration> {
        let mut lease = self.lease();
        (!lease.is_over(SystemClock.now())).then(|| lease.end().since(start))
    }

    /// Whether it is over: expired, closed, or without an answer for too long.
    pub(crate) fn is_over(&self) -> bool {
        self.lease().is_over(SystemClock.now())
    }

    /// Has it be over by our clock.
    #[cfg(test)]
    pub(crate) fn give_up(&self) {
        self.lease().give_up();
    }

    /// Whether a server is reached at present.
    pub(crate) fn is_connected(&self) -> bool {
        !self.suspended.load(Ordering::Acquire)
    }

    /// Returns the instant until which everything that was asked of it has been answered, of the time up to `now`.
    fn answered_until(&self, now: BootInstant) -> BootInstant {
        self.connection.unanswered_since().map_or(now, |since| since.min(now))
    }

    /// Returns the share of what may be watched that a watch of this path takes, to be kept as long as the watch; `None`, after a pause, if
    /// there is not so much left. The caller looks again then, and asks once more. Nobody stands in a queue for it: one that needs much, or
    /// that is kept without being polled, would keep others from what is left.
    pub(crate) async fn watch_budget(&self, path: &str) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(path.len() + self.chroot).unwrap_or(u32::MAX);
        let kept = self.watchable.try_acquire_many(bytes).ok();
        if kept.is_none() {
            // Those who share a watch may be on several runtimes, and one of these may end.
            SystemClock.sleep_until(SystemClock.now().plus(self.pollers.pause(POLL_INTERVAL))).await;
        }
        kept
    }

    /// Returns the grant that the answer to a request sent at this instant proves, with the token of this transaction; `None` while no
    /// server is reached, or if the session is over.
    pub(crate) fn grant(&self, attempt: &Attempt, czxid: i64, sent_at: BootInstant) -> Result<Option<Grant>, Error> {
        let valid_for = self.is_connected().then(|| self.lasts_from(sent_at)).flatten();
        let Some(valid_for) = valid_for else { return Ok(None) };
        let token = u64::try_from(czxid).ok().and_then(FencingToken::new).ok_or_else(|| {
            let what = format!("the transaction {czxid:#x} is no fencing token: it exceeds 2^53");
            attempt.error(ErrorKind::Protocol, Phase::Acquire, what)
        })?;
        Ok(Some(Grant::new(Some(token), sent_at, valid_for.min(attempt.ttl))))
    }

    /// Resolves when the session is over and its holders have been told.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn lease(&self) -> MutexGuard<'_, SessionLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the answer took so long that next to nothing is left of the grant: the connection was lost meanwhile, say.
pub(crate) fn is_spent(grant: &Grant) -> bool {
    SystemClock.now().since(grant.sent_at) >= grant.valid_for / 10 * 9
}
