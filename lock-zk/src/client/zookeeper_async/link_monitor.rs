//! The state of the link, from what the crate says and what it leaves unsaid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use zookeeper_async::ZkState;

use super::watches::Watches;
use super::{Failure, Fate, LinkState};

/// The link of one session. Its end is final.
#[derive(Debug)]
pub(super) struct LinkMonitor {
    state: Mutex<LinkConditions>,
    news: watch::Sender<LinkState>,
    /// The number of connections since the first one.
    connections: AtomicU64,
    /// Up to which connection the crate's answers have been put to the proof.
    proven: AtomicU64,
    /// The number of the connection on which the crate was seen to take answers for others, plus one; 0 if there was none.
    doubted: AtomicU64,
    /// The news that a connection is doubted, that there is another one, or that the session is over.
    turned: Notify,
    /// The session's number; 0 until the first node that it made has said it.
    session: AtomicU64,
    watches: Arc<Watches>,
}

#[derive(Debug, Clone, Copy)]
struct LinkConditions {
    connected: bool,
    /// The servers owe an answer for too long.
    silent: bool,
    stage: Stage,
}

/// The stage to which a session has come. Each stage is final but for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Open,
    /// Nothing is asked any more; the servers have not been told yet.
    Closing,
    Over,
}

impl LinkConditions {
    fn link(self) -> LinkState {
        match self {
            Self { stage: Stage::Over, .. } => LinkState::Ended,
            Self { connected: true, silent: false, .. } => LinkState::Connected,
            _ => LinkState::Suspended,
        }
    }
}

impl LinkMonitor {
    /// The link of a session that is connected, and where its latest change is told.
    pub(super) fn new(watches: Arc<Watches>) -> (Arc<Self>, watch::Receiver<LinkState>) {
        let (news, told) = watch::channel(LinkState::Connected);
        let state = Mutex::new(LinkConditions { connected: true, silent: false, stage: Stage::Open });
        let (connections, proven, doubted, session) = Default::default();
        let turned = Notify::new();
        (Arc::new(Self { state, news, connections, proven, doubted, turned, session, watches }), told)
    }

    /// Notes what the crate says. It says it before any request is answered on a new connection.
    #[expect(deprecated, reason = "the crate's only sign that the session has expired")]
    pub(super) fn hear(&self, said: ZkState) {
        match said {
            ZkState::Connected => {
                self.connections.fetch_add(1, Ordering::AcqRel);
                self.change(|state| state.connected = true);
                self.watches.fire_all();
                self.turned.notify_waiters();
            }
            // A read-only server commits nothing.
            ZkState::Connecting | ZkState::Associating | ZkState::ConnectedReadOnly => {
                self.change(|state| state.connected = false);
            }
            ZkState::NotConnected | ZkState::AuthFailed | ZkState::Closed => self.end(),
        }
    }

    /// Notes whether the servers owe an answer for too long.
    pub(super) fn set_silent(&self, silent: bool) {
        self.change(|state| state.silent = silent);
    }

    /// The session is over.
    pub(super) fn end(&self) {
        self.change(|state| state.stage = Stage::Over);
        self.watches.fire_all();
        self.turned.notify_waiters();
    }

    /// The session is about to be closed. It is over for whoever asks, and has ended when the crate has asked the servers to end it.
    pub(super) fn close(&self) {
        self.change(|state| state.stage = state.stage.max(Stage::Closing));
        self.watches.fire_all();
    }

    /// Whether the session is over, or is about to be closed.
    pub(super) fn is_over(&self) -> bool {
        self.state().stage > Stage::Open
    }

    /// Returns the number of connections since the first one: what was known to one is unknown to the next.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// Up to which connection the crate's answers have been put to the proof.
    pub(super) fn proven(&self) -> u64 {
        self.proven.load(Ordering::Acquire)
    }

    /// Notes that on this connection the crate takes answers for what they are, and the server knows whatever was committed before.
    pub(super) fn set_proven(&self, connection: u64) {
        self.proven.store(connection, Ordering::Release);
    }

    /// Notes that the crate takes answers for those to other requests on this connection: nothing that comes over it counts any more.
    pub(super) fn doubt(&self, connection: u64) {
        self.doubted.fetch_max(connection + 1, Ordering::AcqRel);
        self.turned.notify_waiters();
    }

    /// Whether nothing counts any more that comes over this connection.
    pub(super) fn is_doubted(&self, connection: u64) -> bool {
        self.doubted.load(Ordering::Acquire) == connection + 1
    }

    /// Resolves with the number of the present connection when it is doubted; never when the session is over.
    pub(super) async fn doubted(&self) -> u64 {
        self.turned_to(|| {
            let connection = self.connections();
            (self.is_doubted(connection) && !self.is_over()).then_some(connection)
        })
        .await
    }

    /// Resolves when there is another connection than this one, or the session is over.
    pub(super) async fn replaced(&self, connection: u64) {
        self.turned_to(|| (self.is_over() || self.connections() != connection).then_some(())).await;
    }

    async fn turned_to<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            // Before the look: what happens after it is told.
            let turned = self.turned.notified();
            if let Some(seen) = look() {
                return seen;
            }
            turned.await;
        }
    }

    pub(super) fn session(&self) -> i64 {
        self.session.load(Ordering::Acquire).cast_signed()
    }

    /// Whether a node was made by our session, as an answer over this connection says, and is the one that was asked for. If it is
    /// another one, the crate takes answers for those to other requests; if its session is, the crate has opened that, and ours is
    /// over.
    pub(super) fn is_ours(&self, connection: u64, is_asked_for: bool, session: i64) -> bool {
        if !is_asked_for {
            self.doubt(connection);
            return false;
        }
        let session = session.cast_unsigned();
        let known = self.session.compare_exchange(0, session, Ordering::AcqRel, Ordering::Acquire);
        let ours = known.map_or_else(|known| known == session, |_| session != 0);
        if !ours {
            self.end();
        }
        ours
    }

    /// The answer to a request that was sent when this connection was the last one that had been put to the proof. It may have
    /// been sent on a later one, before the proof of that, and then says nothing.
    pub(super) fn judge<T>(&self, answer: Result<T, Failure>, proven: u64) -> Result<T, Failure> {
        if self.is_over() {
            return Err(Failure { fate: Fate::Ended, source: "the session is over".into() });
        }
        if proven != self.connections() || self.is_doubted(proven) {
            let source = answer
                .err()
                .map_or_else(|| "the answer may be that to another request".into(), |failure| failure.source);
            return Err(Failure { fate: Fate::Unknown, source });
        }
        answer
    }

    fn state(&self) -> MutexGuard<'_, LinkConditions> {
        // A panic elsewhere is not passed on: every critical section leaves the state valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut LinkConditions)) {
        let mut state = self.state();
        let before = state.link();
        change(&mut state);
        let now = state.link();
        if now != before {
            self.news.send_replace(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    type Step = fn(&LinkMonitor);

    /// Returns the states that are announced by these steps.
    fn told(steps: &[Step]) -> Vec<LinkState> {
        let (links, mut news) = LinkMonitor::new(Arc::default());
        let mut told = Vec::new();
        for step in steps {
            step(&links);
            if news.has_changed().unwrap() {
                told.push(*news.borrow_and_update());
            }
        }
        told
    }

    #[test]
    fn a_link_is_suspended_while_it_is_cut_or_silent() {
        let cut: [Step; 5] = [
            |links| links.hear(ZkState::Connected),
            |links| links.hear(ZkState::Connecting),
            |links| links.set_silent(true),
            |links| links.hear(ZkState::Connected),
            |links| links.set_silent(false),
        ];
        assert_eq!(told(&cut), [LinkState::Suspended, LinkState::Connected]);
    }

    #[test]
    #[expect(deprecated, reason = "the crate's only sign that the session has expired")]
    fn an_expired_session_is_over_whatever_comes_after() {
        let expired: [Step; 4] = [
            |links| links.hear(ZkState::Connecting),
            |links| links.hear(ZkState::NotConnected),
            |links| links.hear(ZkState::Connecting),
            |links| links.hear(ZkState::Connected),
        ];
        assert_eq!(told(&expired), [LinkState::Suspended, LinkState::Ended]);
        let (links, _news) = LinkMonitor::new(Arc::default());
        links.hear(ZkState::NotConnected);
        assert_eq!(links.judge(Ok(()), 0).unwrap_err().fate, Fate::Ended);
    }

    #[test]
    fn a_session_that_is_closed_is_over_at_once_and_has_ended_when_that_was_sent() {
        let closed: [Step; 2] = [LinkMonitor::close, |links| links.hear(ZkState::Closed)];
        assert_eq!(told(&closed[..1]), []);
        assert_eq!(told(&closed), [LinkState::Ended]);
        let (links, _news) = LinkMonitor::new(Arc::default());
        links.close();
        assert!(links.is_over());
        assert_eq!(links.judge(Ok(()), 0).unwrap_err().fate, Fate::Ended);
    }

    #[test]
    fn an_answer_on_a_connection_that_is_doubted_says_nothing_and_the_next_one_does() {
        let (links, _news) = LinkMonitor::new(Arc::default());
        links.hear(ZkState::Connected);
        links.set_proven(links.connections());
        assert!(links.is_ours(1, true, 7));
        assert!(links.doubted().now_or_never().is_none());
        assert!(!links.is_ours(1, false, 7) && !links.is_over());
        let (connection, proven) = (links.doubted().now_or_never().unwrap(), links.proven());
        assert_eq!(links.judge(Ok(()), proven).unwrap_err().fate, Fate::Unknown);
        assert!(links.replaced(connection).now_or_never().is_none());
        links.hear(ZkState::Connected);
        assert!(links.replaced(connection).now_or_never().is_some() && links.doubted().now_or_never().is_none());
        links.set_proven(links.connections());
        assert!(links.judge(Ok(()), links.proven()).is_ok());
        links.doubt(connection);
        assert!(links.doubted().now_or_never().is_none(), "a former connection");
        assert!(!links.is_ours(2, true, 8) && links.is_over(), "another session");
        assert!(links.replaced(links.connections()).now_or_never().is_some());
    }

    #[test]
    fn an_answer_on_a_connection_that_was_not_put_to_the_proof_says_nothing() {
        let (links, _news) = LinkMonitor::new(Arc::default());
        let denied = || Err::<(), _>(Failure { fate: Fate::Denied, source: "no".into() });
        assert_eq!(links.judge(denied(), links.proven()).unwrap_err().fate, Fate::Denied);
        let before = links.proven();
        links.hear(ZkState::Connected);
        assert_eq!(links.judge(denied(), before).unwrap_err().fate, Fate::Unknown);
        assert_eq!(links.judge(Ok(()), before).unwrap_err().fate, Fate::Unknown);
        links.set_proven(links.connections());
        assert_eq!(links.judge(Ok(()), before).unwrap_err().fate, Fate::Unknown, "it was sent before the proof");
        assert!(links.judge(Ok(()), links.proven()).is_ok());
    }
}
