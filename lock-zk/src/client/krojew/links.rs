//! What has become of the link, from what the crate says and what it leaves unsaid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use zookeeper_async::ZkState;

use super::watches::Watches;
use super::{Fate, Fault, Link};

/// The link of one session. Its end is final.
#[derive(Debug)]
pub(super) struct Links {
    state: Mutex<State>,
    news: mpsc::UnboundedSender<Link>,
    /// How many connections there have been.
    connections: AtomicU64,
    watches: Arc<Watches>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    connected: bool,
    /// The servers owe an answer for too long.
    silent: bool,
    over: bool,
}

impl State {
    fn link(self) -> Link {
        match self {
            Self { over: true, .. } => Link::Ended,
            Self { connected: true, silent: false, .. } => Link::Connected,
            _ => Link::Suspended,
        }
    }
}

impl Links {
    /// The link of a session that is connected, and where its changes are told.
    pub(super) fn new(watches: Arc<Watches>) -> (Arc<Self>, mpsc::UnboundedReceiver<Link>) {
        let (news, told) = mpsc::unbounded_channel();
        let state = Mutex::new(State { connected: true, silent: false, over: false });
        (Arc::new(Self { state, news, connections: AtomicU64::new(0), watches }), told)
    }

    /// What the crate says. It says it before any request is answered on a new connection.
    #[expect(deprecated, reason = "the crate's only sign that the session has expired")]
    pub(super) fn hear(&self, said: ZkState) {
        match said {
            ZkState::Connected => {
                self.connections.fetch_add(1, Ordering::AcqRel);
                self.change(|state| state.connected = true);
                self.watches.fire_all();
            }
            // A read-only server commits nothing.
            ZkState::Connecting | ZkState::Associating | ZkState::ConnectedReadOnly => {
                self.change(|state| state.connected = false);
            }
            ZkState::NotConnected | ZkState::AuthFailed | ZkState::Closed => self.end(),
        }
    }

    /// Whether the servers owe an answer for too long.
    pub(super) fn is_silent(&self, silent: bool) {
        self.change(|state| state.silent = silent);
    }

    /// The session is over.
    pub(super) fn end(&self) {
        self.change(|state| state.over = true);
        self.watches.fire_all();
    }

    /// How many connections there have been: what was known to one is unknown to the next.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }

    /// The answer to a request that was sent when credentials had been shown to this connection; `None` without credentials.
    pub(super) fn judge<T>(&self, answer: Result<T, Fault>, introduced_to: Option<u64>) -> Result<T, Fault> {
        if self.link() == Link::Ended {
            return Err(Fault { fate: Fate::Ended, source: "the session is over".into() });
        }
        answer.map_err(|mut fault| {
            // It may have been on its way before the credentials were.
            if fault.fate == Fate::Denied && introduced_to.is_some_and(|to| to != self.connections()) {
                fault.fate = Fate::Unknown;
            }
            fault
        })
    }

    fn link(&self) -> Link {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).link()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.link();
        change(&mut state);
        let now = state.link();
        if now != before {
            // Nobody listens once the client is gone.
            let _ = self.news.send(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of this.
    fn told(what: impl FnOnce(&Links)) -> Vec<Link> {
        let (links, mut news) = Links::new(Arc::default());
        what(&links);
        std::iter::from_fn(|| news.try_recv().ok()).collect()
    }

    #[test]
    fn a_link_is_suspended_while_it_is_cut_or_silent() {
        let cut = told(|links| {
            links.hear(ZkState::Connected);
            links.hear(ZkState::Connecting);
            links.is_silent(true);
            links.hear(ZkState::Connected);
            links.is_silent(false);
        });
        assert_eq!(cut, [Link::Suspended, Link::Connected]);
    }

    #[test]
    #[expect(deprecated, reason = "the crate's only sign that the session has expired")]
    fn an_expired_session_is_over_whatever_comes_after() {
        let expired = told(|links| {
            links.hear(ZkState::Connecting);
            links.hear(ZkState::NotConnected);
            links.hear(ZkState::Connecting);
            links.hear(ZkState::Connected);
            assert_eq!(links.judge(Ok(()), None).unwrap_err().fate, Fate::Ended);
        });
        assert_eq!(expired, [Link::Suspended, Link::Ended]);
    }

    #[test]
    fn a_refusal_before_credentials_were_shown_again_says_nothing() {
        let (links, _news) = Links::new(Arc::default());
        let denied = || Err::<(), _>(Fault { fate: Fate::Denied, source: "no".into() });
        links.hear(ZkState::Connected);
        assert_eq!(links.judge(denied(), Some(0)).unwrap_err().fate, Fate::Unknown);
        assert_eq!(links.judge(denied(), Some(1)).unwrap_err().fate, Fate::Denied);
        assert_eq!(links.judge(denied(), None).unwrap_err().fate, Fate::Denied);
    }
}
