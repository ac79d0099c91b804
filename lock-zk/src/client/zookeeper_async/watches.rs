//! The watches of a session. The servers keep watches for a connection, the crate does not ask for them again on the next
//! one: then all of them are called changed, and whoever waits looks, and watches again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use zookeeper_async::{WatchedEvent, WatchedEventType};

use super::NodeChange;

/// The part of a node that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Subject {
    /// The node's data and its end.
    Node,
    /// The node's children and its end.
    Children,
}

/// Dropping a sender is the news.
type WaitersByNode = HashMap<(Subject, String), Vec<oneshot::Sender<()>>>;

/// Every watch of a session.
#[derive(Debug, Default)]
pub(super) struct Watches {
    waiting: Mutex<WaitersByNode>,
}

/// One watch; forgotten when it is dropped. The servers keep theirs until the node changes.
#[derive(Debug)]
pub(super) struct Watch {
    watches: Arc<Watches>,
    what: (Subject, String),
    fired: oneshot::Receiver<()>,
}

impl Watches {
    /// A watch, to be taken before it is asked of the servers: their news may come before their answer.
    pub(super) fn watch(self: &Arc<Self>, path: &str, subject: Subject) -> Watch {
        let (fire, fired) = oneshot::channel();
        let what = (subject, path.to_owned());
        self.waiting().entry(what.clone()).or_default().push(fire);
        Watch { watches: self.clone(), what, fired }
    }

    /// Fires the watches that an event of the servers concerns.
    pub(super) fn fire(&self, event: &WatchedEvent) {
        let Some(path) = &event.path else { return };
        let subjects: &[_] = match event.event_type {
            WatchedEventType::NodeCreated | WatchedEventType::NodeDataChanged => &[Subject::Node],
            WatchedEventType::NodeChildrenChanged => &[Subject::Children],
            WatchedEventType::NodeDeleted => &[Subject::Node, Subject::Children],
            _ => &[],
        };
        for subject in subjects {
            self.waiting().remove(&(*subject, path.clone()));
        }
    }

    /// Nothing is watched any more.
    pub(super) fn fire_all(&self) {
        self.waiting().clear();
    }

    /// A panic elsewhere is not passed on: every critical section leaves the data valid.
    fn waiting(&self) -> MutexGuard<'_, WaitersByNode> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    pub(super) fn fired(mut self) -> NodeChange {
        Box::pin(async move { drop((&mut self.fired).await) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.fired.close();
        let mut waiting = self.watches.waiting();
        if let Some(others) = waiting.get_mut(&self.what) {
            others.retain(|fire| !fire.is_closed());
            if others.is_empty() {
                waiting.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use zookeeper_async::KeeperState;

    fn event(event_type: WatchedEventType, path: &str) -> WatchedEvent {
        WatchedEvent { event_type, keeper_state: KeeperState::SyncConnected, path: Some(path.to_owned()) }
    }

    /// Whether watches of `/a`, of its children and of `/b` have fired after this.
    fn after(what: impl FnOnce(&Watches)) -> [bool; 3] {
        let watches = Arc::<Watches>::default();
        let all = [("/a", Subject::Node), ("/a", Subject::Children), ("/b", Subject::Node)];
        let all = all.map(|(path, subject)| watches.watch(path, subject).fired());
        what(&watches);
        all.map(|fired| fired.now_or_never().is_some())
    }

    #[test]
    fn news_reach_whom_they_concern() {
        let fired = |kind| after(|watches| watches.fire(&event(kind, "/a")));
        assert_eq!(fired(WatchedEventType::NodeDeleted), [true, true, false]);
        assert_eq!(fired(WatchedEventType::NodeDataChanged), [true, false, false]);
        assert_eq!(fired(WatchedEventType::NodeChildrenChanged), [false, true, false]);
    }

    #[test]
    fn a_new_connection_is_news_to_everybody() {
        assert_eq!(after(|_| {}), [false; 3]);
        assert_eq!(after(Watches::fire_all), [true; 3]);
    }

    #[test]
    fn a_watch_that_nobody_waits_for_is_forgotten() {
        let watches = Arc::<Watches>::default();
        let (first, second) = (watches.watch("/a", Subject::Node), watches.watch("/a", Subject::Node));
        drop(first);
        assert_eq!(watches.waiting().len(), 1, "somebody else waits");
        drop(second.fired());
        assert!(watches.waiting().is_empty());
    }
}
