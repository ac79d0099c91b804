//! The watches of a session's waiters. All who wait for one node share one watch, its share of what may be watched, and the looks at the
//! node: ten thousand readers behind a writer leave room for others, and ask the servers as often as one of them.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared, WeakShared};
use futures_util::{FutureExt, future};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Poller, Session};
use crate::client::{Failure, Fate, Refusal};
use crate::store::node::LONGEST_NAME;

/// Resolves when a node may have gone, and says whether that came as news.
type Watching = BoxFuture<'static, Result<bool, Refusal>>;

/// The watches of one session.
#[derive(Debug, Default)]
pub(super) struct WatchedNodes(Mutex<Watches>);

#[derive(Debug, Default)]
struct Watches {
    by_path: HashMap<String, NumberedWatch>,
    last_number: u64,
}

#[derive(Debug)]
struct NumberedWatch {
    number: u64,
    watch: WeakShared<Watching>,
    looks: Arc<Looks>,
}

/// A watch of one node, as one of those who wait for it has it.
#[derive(Debug)]
pub(crate) struct NodeWatch {
    watch: Shared<Watching>,
    looks: Arc<Looks>,
}

/// The looks at one node by those who watch it.
#[derive(Debug)]
struct Looks {
    /// The beginning of the last one.
    last: Mutex<Instant>,
    /// The news that one of them has found it gone.
    gone: Notify,
}

/// A look at a node, by one of those who watch it for all of them. One that is dropped before it was carried through was none: the next one
/// is due as if it had not been begun. One that is kept without being polled holds up the next one for a pause.
#[derive(Debug)]
#[must_use]
pub(crate) struct LookForAll<'a> {
    looks: &'a Looks,
    begun: Instant,
    before: Instant,
}

impl Looks {
    fn last(&self) -> MutexGuard<'_, Instant> {
        // An instant is whole whoever panicked.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LookForAll<'_> {
    /// Notes that it was carried through.
    pub(crate) fn carried_through(mut self) {
        self.before = self.begun;
    }
}

impl Drop for LookForAll<'_> {
    fn drop(&mut self) {
        let mut last = self.looks.last();
        // Somebody else may have begun another one.
        if *last == self.begun {
            *last = self.before;
        }
    }
}

impl NodeWatch {
    /// Waits until the node may have gone, and returns whether that came as news. One that was not there when it was to be watched has gone.
    /// Each of those who wait drives the watch: nobody depends on another one who is kept without being polled.
    pub(crate) async fn changed(&self) -> Result<bool, Failure> {
        Ok(self.watch.clone().await?)
    }

    /// Begins a look at the node when none was begun for such a pause, and the caller has paused for so long.
    ///
    /// # Cancel safety
    /// Waits only.
    pub(crate) async fn next_look(&self, pause: Duration, poller: &Poller<'_>) -> LookForAll<'_> {
        let mut left = pause;
        loop {
            // Where too many wait, each of them pauses for longer.
            let beyond = poller.pause(pause).saturating_sub(pause);
            tokio::time::sleep(left + beyond).await;
            match self.begin_look(pause) {
                Ok(look) => return look,
                Err(rest) => left = rest,
            }
        }
    }

    /// Begins a look at the node, or returns the time that is left until it is due.
    fn begin_look(&self, pause: Duration) -> Result<LookForAll<'_>, Duration> {
        let (mut last, begun) = (self.looks.last(), Instant::now());
        let left = pause.saturating_sub(begun.saturating_duration_since(*last));
        if !left.is_zero() {
            return Err(left);
        }
        Ok(LookForAll { looks: &self.looks, begun, before: mem::replace(&mut *last, begun) })
    }

    /// Tells all who wait for the node that it was found gone.
    pub(crate) fn found_gone(&self) {
        // The watch waits for it: it is told once.
        self.looks.gone.notify_one();
    }
}

impl WatchedNodes {
    fn watches(&self) -> MutexGuard<'_, Watches> {
        // Every critical section leaves them valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Watches a node. Callers who come while others watch it join them: that watch has not fired yet, so it tells of whatever happened
    /// after the look by which the node was there. It ends with the last one who has it.
    pub(crate) fn watch_node(self: &Arc<Self>, path: &str) -> NodeWatch {
        let mut watches = self.watched.watches();
        if let Some(known) = watches.by_path.get(path)
            && let Some(watch) = known.watch.upgrade()
        {
            return NodeWatch { watch, looks: known.looks.clone() };
        }
        watches.last_number += 1;
        let (number, path) = (watches.last_number, path.to_owned());
        let looks = Arc::new(Looks { last: Mutex::new(Instant::now()), gone: Notify::new() });
        let (entry, looked) = (WatchEntry { session: self.clone(), path: path.clone(), number }, looks.clone());
        let watching = async move {
            tokio::select! {
                biased;
                changed = entry.session.watch_once(&entry.path) => changed,
                () = looked.gone.notified() => Ok(false),
            }
        };
        let watch = watching.boxed().shared();
        // One that nobody has polled has not come to its end.
        if let Some(weak) = watch.downgrade() {
            watches.by_path.insert(path, NumberedWatch { number, watch: weak, looks: looks.clone() });
        }
        NodeWatch { watch, looks }
    }

    async fn watch_once(&self, path: &str) -> Result<bool, Refusal> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        if name.len() > LONGEST_NAME {
            // Somebody else's, as long as the server lets it be: its watch would take the room of all others. Those who wait look.
            return future::pending().await;
        }
        let _kept = loop {
            if let Some(kept) = self.watch_budget(path).await {
                break kept;
            }
        };
        match self.connection.watch(path).await {
            Ok(Some(change)) => {
                change.await;
                Ok(true)
            }
            // The listing that follows is repeated until it is answered.
            Err(failure) if failure.fate != Fate::Unknown => Err(failure.into()),
            _ => Ok(false),
        }
    }
}

/// The entry of a watch, which goes with it.
struct WatchEntry {
    session: Arc<Session>,
    path: String,
    number: u64,
}

impl Drop for WatchEntry {
    fn drop(&mut self) {
        let mut watches = self.session.watched.watches();
        // Somebody may have come in between, and have begun another one.
        if watches.by_path.get(&self.path).is_some_and(|known| known.number == self.number) {
            watches.by_path.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use lock_testkit::testing::{PROMPTLY, eventually, installed, soon};
    use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperServer};

    use super::*;
    use crate::client::ClientCrate;
    use crate::config::ZkConfig;
    use crate::connect::connect;
    use crate::session::WATCHABLE;
    use crate::session::poll::Pollers;

    const PATH: &str = "/somebody-elses";

    #[tokio::test]
    async fn those_who_wait_for_one_node_share_a_watch_that_outlives_each_of_them_and_depends_on_none() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let truth = server.client().await.unwrap();
        truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        let waits = || async { session.watch_node(PATH).changed().await };
        let is_free =
            || session.watched.watches().by_path.is_empty() && session.watchable.available_permits() == WATCHABLE;
        {
            let mut kept = pin!(waits());
            let mut others: Vec<_> = (0..100).map(|_| Box::pin(waits())).collect();
            let mut first = Box::pin(waits());
            assert!((&mut first).now_or_never().is_none() && (&mut kept).now_or_never().is_none());
            assert!(others.iter_mut().all(|other| other.now_or_never().is_none()));
            let watches = async || server.figure("zk_watch_count").await.unwrap() == 1;
            eventually("a watch", PROMPTLY, async || (&mut others[0]).now_or_never().is_none() && watches().await)
                .await;
            assert_eq!(session.watchable.available_permits(), WATCHABLE - PATH.len(), "more than one share is taken");
            drop((first, others.pop()));
            assert!(truth.delete(PATH).await.unwrap());
            for other in others {
                assert!(soon("the news", PROMPTLY, other).await.unwrap());
            }
            // Polled once, long ago.
            assert!(soon("the news", PROMPTLY, kept).await.unwrap());
        }
        assert!(is_free(), "something is left of the watch");
        assert!(!soon("it is gone", PROMPTLY, waits()).await.unwrap());
        truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        assert!(waits().now_or_never().is_none());
        assert!(is_free(), "something is left of a wait that was dropped");
        // Whoever looks does so for all.
        let [one, other] = [(); 2].map(|()| session.watch_node(PATH));
        assert!(one.changed().now_or_never().is_none());
        let look = one.begin_look(Duration::ZERO).unwrap();
        assert!(one.begin_look(PROMPTLY).is_err() && other.begin_look(PROMPTLY).is_err());
        look.carried_through();
        assert!(one.begin_look(PROMPTLY).is_err() && other.begin_look(PROMPTLY).is_err());
        one.found_gone();
        assert_eq!(
            [one.changed().now_or_never().unwrap().ok(), other.changed().now_or_never().unwrap().ok()],
            [Some(false); 2]
        );
    }

    const PAUSE: Duration = Duration::from_millis(500);

    /// Two who watch a node, where there is no room for a watch.
    fn two_watches() -> [NodeWatch; 2] {
        let looks = Arc::new(Looks { last: Mutex::new(Instant::now()), gone: Notify::new() });
        [(); 2].map(|()| NodeWatch { watch: future::pending().boxed().shared(), looks: looks.clone() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_for_all_who_watch_a_node_if_it_is_carried_through_and_for_nobody_if_not() {
        let ([one, other], pollers) = (two_watches(), Pollers::default());
        let (poller, began) = (pollers.begin(), Instant::now());
        let taken = one.next_look(PAUSE, &poller).await;
        assert_eq!(began.elapsed(), PAUSE);
        assert_eq!(other.begin_look(PAUSE).unwrap_err(), PAUSE, "one of them looks");
        drop(taken);
        other.begin_look(PAUSE).expect("nobody has looked").carried_through();
        assert_eq!(one.begin_look(PAUSE).unwrap_err(), PAUSE, "the other one has");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_that_another_one_has_looked_sleeps_what_is_left_of_the_pause() {
        let ([one, other], pollers) = (two_watches(), Pollers::default());
        let (poller, began) = (pollers.begin(), Instant::now());
        let mut looks = pin!(one.next_look(PAUSE, &poller));
        assert!((&mut looks).now_or_never().is_none());
        tokio::time::sleep(PAUSE / 10).await;
        *one.looks.last() = began.checked_sub(PAUSE).unwrap();
        other.begin_look(PAUSE).unwrap().carried_through();
        looks.await.carried_through();
        assert_eq!(began.elapsed(), PAUSE + PAUSE / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_that_is_kept_without_being_polled_holds_up_the_next_one_for_a_pause() {
        let ([one, other], pollers) = (two_watches(), Pollers::default());
        let (poller, began) = (pollers.begin(), Instant::now());
        let kept = one.next_look(PAUSE, &poller).await;
        let next = other.next_look(PAUSE, &poller).await;
        assert_eq!(began.elapsed(), PAUSE * 2);
        drop(kept);
        assert_eq!(one.begin_look(PAUSE).unwrap_err(), PAUSE, "another one looks");
        drop(next);
        drop(one.begin_look(PAUSE).expect("nobody has looked"));
    }

    /// Polls two watches, and waits for the news of the second one, whose node is deleted meanwhile.
    async fn is_told_beside(one: &NodeWatch, other: &NodeWatch, deleted: impl Future<Output = bool>) {
        let (mut one, mut other) = (pin!(one.changed()), pin!(other.changed()));
        assert!((&mut one).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        assert!(deleted.await);
        tokio::select! {
            biased;
            is_news = soon("the news", PROMPTLY, other) => assert!(is_news.unwrap(), "it was gone before it was watched"),
            _ = one => panic!("nothing has happened to the other node"),
        }
    }

    #[tokio::test]
    async fn a_name_as_long_as_no_library_makes_takes_the_room_of_no_watch() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let truth = server.client().await.unwrap();
        truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        for long in [WATCHABLE - 1, WATCHABLE - 2048, LONGEST_NAME + 2] {
            let long = session.watch_node(&format!("/{}", "x".repeat(long - 1)));
            assert!(long.changed().now_or_never().is_none());
            assert_eq!(session.watchable.available_permits(), WATCHABLE);
            let short = session.watch_node(PATH);
            let deleted = async {
                eventually("a watch", PROMPTLY, async || {
                    let _ = short.changed().now_or_never();
                    server.figure("zk_watch_count").await.unwrap() == 1
                })
                .await;
                truth.delete(PATH).await.unwrap()
            };
            is_told_beside(&long, &short, deleted).await;
            truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_waits_for_much_room_keeps_nobody_from_what_is_left() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let truth = server.client().await.unwrap();
        // Of a lock whose name is long.
        let long = format!("/{}/lock", "x".repeat(2048));
        for path in [PATH, &long] {
            truth.create_all(path).await.unwrap();
        }
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        let taken = session.watch_budget(&"x".repeat(WATCHABLE - 1024)).await.unwrap();
        let (one, other) = (session.watch_node(&long), session.watch_node(PATH));
        let is_watched = async || {
            let _ = (one.changed().now_or_never(), other.changed().now_or_never());
            server.figure("zk_watch_count").await.unwrap() == 1
        };
        let deleted = async {
            eventually("a watch", PROMPTLY, is_watched).await;
            truth.delete(PATH).await.unwrap()
        };
        is_told_beside(&one, &other, deleted).await;
        drop(taken);
        eventually("there is room for it, too", PROMPTLY, is_watched).await;
    }

    /// One of two who share a watch is on a runtime that ends while there is no room for it.
    #[tokio::test]
    async fn a_watch_that_waits_for_room_outlives_the_runtime_on_which_it_began_to() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        server.client().await.unwrap().create(PATH, b"", NodeKind::Persistent).await.unwrap();
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        let taken = session.watch_budget(&"x".repeat(WATCHABLE)).await.unwrap();
        let (one, other) = (session.watch_node(PATH), session.watch_node(PATH));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            assert!(runtime.block_on(async { other.changed().now_or_never() }).is_none());
        })
        .join()
        .unwrap();
        assert!(one.changed().now_or_never().is_none());
        drop(taken);
        let is_watched = async || {
            let _ = one.changed().now_or_never();
            server.figure("zk_watch_count").await.unwrap() == 1
        };
        eventually("there is room for it", PROMPTLY, is_watched).await;
    }
}
