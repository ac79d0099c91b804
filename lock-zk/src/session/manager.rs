//! The one task of a client that keeps its session alive and, when it has ended, opens another.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, Phase, driver::wait};
use tokio::sync::watch;

use super::{Session, SessionState};
use crate::client::diagnosis;
use crate::client::{ClientCrate, ConnectOptions, Connection, Fate, Fault, LinkState};
use crate::error;

/// Pauses between two tries to open a session: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How often requests without an answer are looked for, and how old one must be for a heartbeat to be sent behind it, whose answer tells
/// whether that one was lost.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Heartbeats are sent so many times within the patience of a wait: what is not asked cannot be unanswered.
const HEARTBEATS_IN_PATIENCE: u32 = 4;
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(50);

/// Is told of each session that ended, before a new one is opened.
type OnSessionEnd = Box<dyn Fn(&Arc<Session>) + Send + Sync>;

/// How to open a session.
#[derive(Debug, Clone)]
pub(crate) struct SessionOptions {
    pub(crate) by: ClientCrate,
    pub(crate) options: ConnectOptions,
    pub(crate) tick: Duration,
    /// After which time without an answer a wait is given up.
    pub(crate) patience: Duration,
}

/// The sessions of one client, one at a time. Dropping this ends the last one.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: watch::Receiver<Option<Arc<Session>>>,
    news: watch::Receiver<SessionStatus>,
    /// Closed when this is dropped.
    alive: watch::Sender<()>,
}

/// What the task tells beside the session itself.
#[derive(Debug, Clone)]
struct SessionStatus {
    state: SessionState,
    /// Until when everything was answered; beyond that while the session is connected.
    answered_until: BootInstant,
    /// The refusal of the last try to open a session, while there is none.
    refusal: Option<Refusal>,
    /// There is no session any more, and never will be.
    closed: bool,
}

/// The refusal of a session, and its cause.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) fate: Fate,
    pub(crate) cause: Arc<dyn std::error::Error + Send + Sync>,
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self { fate: fault.fate, cause: fault.source.into() }
    }
}

impl Sessions {
    /// Opens the first session and starts the task that keeps it.
    pub(crate) async fn open(plan: SessionOptions, told: OnSessionEnd) -> Result<Self, Error> {
        let servers = &plan.options.servers;
        let first = match plan.connect().await {
            Ok(first) => first,
            Err(fault) => return Err(error::of_connect(diagnosis::diagnosed(fault, servers).await, servers)),
        };
        plan.check_chroot(&first).await?;
        let (current, current_seen) = watch::channel(Some(first.clone()));
        let news = SessionStatus {
            state: SessionState::Connected,
            answered_until: SystemClock.now(),
            refusal: None,
            closed: false,
        };
        let (news, news_seen) = watch::channel(news);
        let (alive, alive_seen) = watch::channel(());
        tokio::spawn(SessionTask { plan, told, current, news, alive: alive_seen }.run(first));
        Ok(Self { current: current_seen, news: news_seen, alive })
    }

    /// The present session, or the next one if there is none at present.
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

    /// What the session is doing, and every change of it.
    pub(crate) fn state(&self) -> SessionState {
        self.news.borrow().state
    }

    /// For how long the servers keep what the present session has when they hear nothing of it.
    pub(crate) fn timeout(&self) -> Duration {
        self.current.borrow().as_ref().map_or(Duration::ZERO, |session| session.connection.timeout())
    }

    /// Closes the session: whoever holds or waits by it is told, and no other one is opened. Resolves when the servers have
    /// confirmed it, or no server is reached any more.
    ///
    /// # Cancel safety
    /// The session is closed although the future was dropped.
    pub(crate) async fn close(&self) {
        self.alive.send_replace(());
        self.closed().await;
    }

    /// Resolves when there is no session any more, and never will be.
    pub(crate) async fn closed(&self) {
        // Without its task there is none, either.
        let _ = self.news.clone().wait_for(|news| news.closed).await;
    }

    /// The refusal of the last try to open a session; `None` while there is one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.news.borrow().refusal.clone()
    }

    /// Resolves when something has been without an answer for this long, counted from now at the earliest.
    pub(crate) async fn silence(&self, patience: Duration) {
        let mut since = SystemClock.now();
        loop {
            SystemClock.sleep_until(since.plus(patience)).await;
            let answered_until = self.answered_until();
            if answered_until <= since {
                return;
            }
            since = answered_until;
        }
    }

    /// Until when everything that was asked has been answered.
    fn answered_until(&self) -> BootInstant {
        let session = self.current.borrow().clone();
        match session {
            Some(session) if session.is_connected() => session.answered_until(SystemClock.now()),
            _ => self.news.borrow().answered_until,
        }
    }
}

impl SessionOptions {
    async fn connect(&self) -> Result<Arc<Session>, Fault> {
        let asked_at = SystemClock.now();
        let connection = self.by.connect(&self.options).await?;
        Ok(Session::new(connection, asked_at, self.tick, self.options.chroot.len()))
    }

    /// Without its chroot a client can do nothing, and every request would be refused for another reason.
    async fn check_chroot(&self, session: &Session) -> Result<(), Error> {
        if self.options.chroot.is_empty() {
            return Ok(());
        }
        let there = session.connection.read_all(&["/".to_owned()]).await;
        let there = there.map_err(|fault| error::of_connect(fault, &self.options.servers))?;
        if there.iter().any(Option::is_none) {
            let what = format!("the chroot {:?} does not exist", self.options.chroot);
            return Err(Error::invalid(Phase::Connect, what)
                .with_server(&self.options.servers)
                .with_backend(crate::NAME));
        }
        Ok(())
    }
}

struct SessionTask {
    plan: SessionOptions,
    told: OnSessionEnd,
    current: watch::Sender<Option<Arc<Session>>>,
    news: watch::Sender<SessionStatus>,
    alive: watch::Receiver<()>,
}

type Heartbeat = Pin<Box<dyn Future<Output = (BootInstant, Result<(), Fault>)> + Send>>;

impl SessionTask {
    async fn run(mut self, first: Arc<Session>) {
        let mut session = first;
        loop {
            let goes_on = self.keep(&session).await.is_continue();
            self.end(&session);
            if !goes_on {
                until_closed(&*session.connection).await;
                break;
            }
            drop(session);
            let Some(next) = self.reconnect().await else { break };
            tracing::info!(session = next.connection.id(), "new session");
            self.tell(SessionState::Connected);
            self.answered_until(SystemClock.now());
            self.news.send_modify(|news| news.refusal = None);
            self.current.send_replace(Some(next.clone()));
            session = next;
        }
        self.news.send_modify(|news| news.closed = true);
    }

    /// The session is over: everybody who has something by it is told.
    fn end(&self, session: &Arc<Session>) {
        session.lease().give_up();
        self.current.send_replace(None);
        self.tell(SessionState::Lost);
        (self.told)(session);
        session.over.send_replace(true);
        // Whoever still has a request of it, and forgets to look, must not keep what the servers know of it.
        session.connection.close();
    }

    /// Keeps a session alive until it is over, or the client is gone.
    async fn keep(&mut self, session: &Arc<Session>) -> std::ops::ControlFlow<()> {
        let connection = &session.connection;
        let often = (self.plan.patience / HEARTBEATS_IN_PATIENCE).max(SHORTEST_HEARTBEAT);
        let every = session.lease().heartbeat_interval().min(often);
        let mut heartbeats: FuturesUnordered<Heartbeat> = FuturesUnordered::new();
        let (mut last_heartbeat, mut next_heartbeat) = (SystemClock.now(), SystemClock.now());
        while let Some(left) = session.left(SystemClock.now()) {
            let now = SystemClock.now();
            if now >= next_heartbeat && session.is_connected() {
                heartbeats.push(heartbeat(&**connection, now));
                (last_heartbeat, next_heartbeat) = (now, now.plus(every));
            }
            let awake = now.plus(left.min(POLL_INTERVAL));
            let wake = if session.is_connected() { next_heartbeat.min(awake) } else { awake };
            tokio::select! {
                biased;
                _ = self.alive.changed() => return std::ops::ControlFlow::Break(()),
                Some((sent_at, answer)) = heartbeats.next() => match answer {
                    Ok(()) => {
                        session.lease().answered(sent_at, SystemClock.now());
                        self.answered_until(session.answered_until(SystemClock.now()));
                    }
                    Err(fault) => tracing::debug!(error = %fault.source, "a heartbeat was not answered"),
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
                        tracing::info!(session = connection.id(), "session suspended: no server is reached");
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
        tracing::warn!(session = connection.id(), "session lost; everything that it held is lost");
        std::ops::ControlFlow::Continue(())
    }

    /// A new session, however long that takes; `None` if the client is gone.
    async fn reconnect(&mut self) -> Option<Arc<Session>> {
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            let opened = tokio::select! {
                biased;
                _ = self.alive.changed() => return None,
                opened = self.plan.connect() => opened,
            };
            match opened {
                Ok(session) => return Some(session),
                Err(fault) => self.refused(fault),
            }
            tokio::select! {
                biased;
                _ = self.alive.changed() => return None,
                () = tokio::time::sleep(pause) => {}
            }
        }
        None
    }

    fn tell(&self, state: SessionState) {
        self.news.send_modify(|news| news.state = state);
    }

    fn answered_until(&self, instant: BootInstant) {
        self.news.send_modify(|news| news.answered_until = instant);
    }

    /// No session was opened: told to whoever asks, and to the log when the cause is another one than before.
    fn refused(&self, fault: Fault) {
        let known = self.news.borrow().refusal.as_ref().is_some_and(|refusal| refusal.fate == fault.fate);
        if known {
            tracing::debug!(error = %fault.source, "no new session yet");
        } else {
            tracing::warn!(error = %fault.source, "no new session yet; trying again until there is one");
        }
        self.news.send_modify(|news| news.refusal = Some(fault.into()));
    }
}

/// Until the crate says that the session is closed, which takes it no longer than the session would have lasted.
async fn until_closed(connection: &dyn Connection) {
    let ended = async { while connection.link_changed().await != LinkState::Ended {} };
    let _ = tokio::time::timeout(connection.timeout(), ended).await;
}

fn heartbeat(connection: &dyn Connection, sent_at: BootInstant) -> Heartbeat {
    let answer = connection.heartbeat();
    Box::pin(async move { (sent_at, answer.await) })
}
