//! The one task of a client that keeps its session alive and, when it has ended, opens another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{log, supervised, wait};
use lock_core::{Error, Phase};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::lease::longest_tick;
use super::{OnSessionEnd, Session, SessionState, SessionStatus, Sessions};
use crate::client::diagnosis;
use crate::client::{ClientCrate, ConnectOptions, Connection, Failure, Fate, LinkState};
use crate::error;

/// Times between the beginnings of two tries to open a session: the first one, and the longest. Chance adds up to as much again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(750);

/// The time by which the first opening may exceed the session's timeout. An end of the client crate's own comes before, and says more.
const GRACE: Duration = Duration::from_millis(100);

/// The time between two looks for requests without an answer, and the age of one behind which a heartbeat is sent, whose answer
/// tells whether that one was lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Heartbeats are sent so many times within the patience of a wait: what is not asked cannot be unanswered.
const HEARTBEATS_IN_PATIENCE: u32 = 4;
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(50);

/// The most heartbeats without an answer. With the defaults a session has 8 to 16 within its timeout.
const MOST_HEARTBEATS: usize = 64;

/// The options by which sessions are opened and kept.
#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    pub(crate) client_crate: ClientCrate,
    pub(crate) connect: ConnectOptions,
    pub(crate) tick: Duration,
    /// The time without an answer after which a wait is given up.
    pub(crate) patience: Duration,
}

/// Announces, when dropped, that its session is over.
struct Over<'a>(&'a Session);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.send_replace(true);
        // A caller that holds one of its requests and does not poll it must not keep the session open at the servers.
        self.0.connection.close();
    }
}

/// Opens the first session and starts the task that keeps it. `on_end` is called with each session that ended, before a new one
/// is opened.
///
/// # Errors
/// Those of [`error::of_connect`], if no session could be opened.
pub(super) async fn start(options: SessionOptions, on_end: OnSessionEnd) -> Result<Sessions, Error> {
    let servers = &options.connect.servers;
    let until = Instant::now() + options.connect.timeout + GRACE;
    let first = match options.open_first(until).await {
        Ok(first) => first,
        Err(failure) => return Err(error::of_connect(diagnosis::diagnosed(failure, servers).await, servers)),
    };
    let checked = timeout_at(until, options.check_chroot(&first)).await;
    checked.unwrap_or_else(|_| Err(error::of_connect(late(), servers)))?;
    let (current, current_seen) = watch::channel(Some(first.clone()));
    let status = SessionStatus { state: SessionState::Connected, answered_until: SystemClock.now(), refusal: None };
    let (status, status_seen) = watch::channel(status);
    let ((closed, closed_seen), (alive, alive_seen)) = (watch::channel(false), watch::channel(()));
    let (task, mut first) = (Arc::new(SessionTask { options, on_end, current, status, closed }), Some(first));
    tokio::spawn(supervised("session", move || task.clone().run(first.take(), alive_seen.clone())));
    Ok(Sessions { current: current_seen, status: status_seen, closed: closed_seen, alive })
}

impl SessionOptions {
    /// Opens the first session, by as many rounds as there are until then. The pauses are ours, as they are where a session is followed by
    /// another one: the crate, left to itself, tries without a pause when its time is over, for as long as there is no network.
    async fn open_first(&self, until: Instant) -> Result<Arc<Session>, Failure> {
        let (mut last, last_round) = (late(), until - GRACE * 2);
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            let began = Instant::now();
            match timeout_at(until, self.open()).await {
                Ok(Err(failure)) if !matches!(failure.fate, Fate::Denied | Fate::Invalid | Fate::Missing) => {
                    last = failure
                }
                Ok(outcome) => return outcome,
                Err(_) => break,
            }
            if began >= last_round {
                break;
            }
            sleep_until((began + pause).min(last_round)).await;
        }
        Err(last)
    }

    /// Opens a session, by one try at each server. One that took long to open has little left of its lease: then one more is opened, for as
    /// long as the first one can wait, which is sent a heartbeat meanwhile. The one that lasts longer counts, if it can be kept.
    async fn open(&self) -> Result<Arc<Session>, Failure> {
        let first = self.open_one().await?;
        let now = SystemClock.now();
        if first.lease().is_fresh(now) {
            return Ok(first);
        }
        let spare = first.lease().spare(now);
        let limit = if spare.is_zero() { self.connect.timeout } else { spare };
        let next = {
            let kept = heartbeat(&*first.connection, now).map(|(sent_at, answer)| {
                if answer.is_ok() {
                    first.lease().answered(sent_at, SystemClock.now());
                }
            });
            match select(Box::pin(timeout(limit, self.open_one())), kept).await {
                Either::Left((next, _)) => next,
                Either::Right(((), next)) => next.await,
            }
        };
        let (better, why) = match next {
            Ok(Ok(next)) => {
                let is_better = next.lease().end() >= first.lease().end();
                let (better, other) = if is_better { (next, first) } else { (first, next) };
                other.connection.close();
                (better, late())
            }
            Ok(Err(failure)) => (first, failure),
            Err(_) => (first, late()),
        };
        if better.lease().can_be_kept(SystemClock.now()) {
            return Ok(better);
        }
        better.connection.close();
        Err(why)
    }

    async fn open_one(&self) -> Result<Arc<Session>, Failure> {
        let connection = self.client_crate.connect(&self.connect).await?;
        let (granted, tick) = (connection.timeout(), self.tick);
        if tick > longest_tick(granted) {
            connection.close();
            let what =
                format!("the servers grant a session of {granted:?}, which cannot be kept with a tick of {tick:?}");
            return Err(Failure { fate: Fate::Invalid, source: what.into() });
        }
        Ok(Session::new(connection, tick, self.connect.chroot.len()))
    }

    /// Without its chroot a client can do nothing, and every request would be refused for another reason.
    async fn check_chroot(&self, session: &Session) -> Result<(), Error> {
        if self.connect.chroot.is_empty() {
            return Ok(());
        }
        let there = session.connection.read_all(&["/".to_owned()]).await;
        let there = there.map_err(|failure| error::of_connect(failure, &self.connect.servers))?;
        if there.iter().any(Option::is_none) {
            let what = format!("the chroot {:?} does not exist", self.connect.chroot);
            return Err(Error::invalid(Phase::Connect, what)
                .with_server(&self.connect.servers)
                .with_backend(crate::guarantees::NAME));
        }
        Ok(())
    }
}

struct SessionTask {
    options: SessionOptions,
    on_end: OnSessionEnd,
    current: watch::Sender<Option<Arc<Session>>>,
    status: watch::Sender<SessionStatus>,
    closed: watch::Sender<bool>,
}

type Heartbeat = Pin<Box<dyn Future<Output = (BootInstant, Result<(), Failure>)> + Send>>;

impl SessionTask {
    /// Keeps the first session, and those that follow, until `alive` says that the client is gone.
    async fn run(self: Arc<Self>, first: Option<Arc<Session>>, mut alive: watch::Receiver<()>) {
        let mut present = first;
        if present.is_none() {
            self.give_up_former();
        }
        loop {
            let session = match present.take() {
                Some(session) => session,
                None => match self.reconnect(&mut alive).await {
                    Some(next) => next,
                    None => break,
                },
            };
            let goes_on = self.keep(&session, &mut alive).await.is_continue();
            self.end(&session);
            if !goes_on {
                until_closed(&*session.connection).await;
                break;
            }
        }
        self.closed.send_replace(true);
    }

    /// Gives up the session of a run that has panicked: nobody knows what it was about to do.
    fn give_up_former(&self) {
        let former = self.current.borrow().clone();
        if let Some(session) = former {
            self.end(&session);
        }
    }

    /// The session is over: everybody who has something by it is told.
    fn end(&self, session: &Arc<Session>) {
        session.lease().give_up();
        // At the end of this, which may be a panic.
        let _over = Over(session);
        self.current.send_replace(None);
        self.tell(SessionState::Lost);
        (self.on_end)(session);
    }

    /// Keeps a session alive until it is over, or the client is gone.
    async fn keep(&self, session: &Arc<Session>, alive: &mut watch::Receiver<()>) -> std::ops::ControlFlow<()> {
        let connection = &session.connection;
        let often = (self.options.patience / HEARTBEATS_IN_PATIENCE).max(SHORTEST_HEARTBEAT);
        let every = session.lease().heartbeat_interval().min(often);
        let mut heartbeats: FuturesUnordered<Heartbeat> = FuturesUnordered::new();
        let (mut last_heartbeat, mut next_heartbeat) = (SystemClock.now(), SystemClock.now());
        while let Some(left) = session.left(SystemClock.now()) {
            let now = SystemClock.now();
            if now >= next_heartbeat && session.is_connected() {
                if heartbeats.len() < MOST_HEARTBEATS {
                    heartbeats.push(heartbeat(&**connection, now));
                    last_heartbeat = now;
                }
                next_heartbeat = now.plus(every);
            }
            let awake = now.plus(left.min(POLL_INTERVAL));
            let wake = if session.is_connected() { next_heartbeat.min(awake) } else { awake };
            tokio::select! {
                biased;
                _ = alive.changed() => return std::ops::ControlFlow::Break(()),
                Some((sent_at, answer)) = heartbeats.next() => match answer {
                    Ok(()) => {
                        session.lease().answered(sent_at, SystemClock.now());
                        self.answered_until(session.answered_until(SystemClock.now()));
                    }
                    Err(failure) => log(|| tracing::debug!(error = %failure.source, "a heartbeat was not answered")),
                },
                link = connection.link_changed() => match link {
                    LinkState::Connected => {
                        session.suspended.store(false, Ordering::Release);
                        self.tell(SessionState::Connected);
                        next_heartbeat = SystemClock.now();
                    }
                    LinkState::Suspended => {
                        session.suspended.store(true, Ordering::Release);
                        self.tell(SessionState::Suspended);
                        log(|| tracing::info!(session = connection.id(), "session suspended: no server is reached"));
                    }
                    LinkState::Ended => break,
                },
                () = SystemClock.sleep_until(wake) => {
                    let since = session.connection.unanswered_since();
                    if since.is_some_and(|since| since > last_heartbeat && since.plus(POLL_INTERVAL) <= SystemClock.now()) {
                        next_heartbeat = SystemClock.now();
                    }
                }
            }
        }
        log(|| tracing::warn!(session = connection.id(), "session lost; everything that it held is lost"));
        std::ops::ControlFlow::Continue(())
    }

    /// A new session, however long that takes; `None` if the client is gone. The pauses are ours: those of the crate, which
    /// would go on trying for a session's timeout, double without a limit.
    async fn reconnect(&self, alive: &mut watch::Receiver<()>) -> Option<Arc<Session>> {
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            let next = SystemClock.now().plus(pause);
            let opened = tokio::select! {
                biased;
                _ = alive.changed() => return None,
                opened = self.options.open() => opened,
            };
            match opened {
                Ok(session) => return Some(self.opened(session)),
                Err(failure) => self.refused(failure),
            }
            tokio::select! {
                biased;
                _ = alive.changed() => return None,
                () = SystemClock.sleep_until(next) => {}
            }
        }
        None
    }

    /// There is a new session: told to whoever waits for one.
    fn opened(&self, session: Arc<Session>) -> Arc<Session> {
        log(|| tracing::info!(session = session.connection.id(), "new session"));
        self.tell(SessionState::Connected);
        self.answered_until(SystemClock.now());
        self.status.send_modify(|status| status.refusal = None);
        self.current.send_replace(Some(session.clone()));
        session
    }

    fn tell(&self, state: SessionState) {
        self.status.send_modify(|status| status.state = state);
    }

    fn answered_until(&self, instant: BootInstant) {
        self.status.send_modify(|status| status.answered_until = instant);
    }

    /// No session was opened: told to whoever asks, and to the log when the cause is another one than before.
    fn refused(&self, failure: Failure) {
        let known = self.status.borrow().refusal.as_ref().is_some_and(|refusal| refusal.fate == failure.fate);
        if known {
            log(|| tracing::debug!(error = %failure.source, "no new session yet"));
        } else {
            log(|| tracing::warn!(error = %failure.source, "no new session yet; trying again until there is one"));
        }
        self.status.send_modify(|status| status.refusal = Some(failure.into()));
    }
}

/// Until the crate says that the session is closed, which takes it no longer than the session would have lasted.
async fn until_closed(connection: &dyn Connection) {
    let ended = async { while connection.link_changed().await != LinkState::Ended {} };
    let _ = tokio::time::timeout(connection.timeout(), ended).await;
}

/// The failure of an opening for which no time is left.
fn late() -> Failure {
    Failure { fate: Fate::Unknown, source: "no session that can be kept was opened in time".into() }
}

fn heartbeat(connection: &dyn Connection, sent_at: BootInstant) -> Heartbeat {
    let answer = connection.heartbeat();
    Box::pin(async move { (sent_at, answer.await) })
}
