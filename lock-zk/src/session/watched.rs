//! The watches of a session's waiters. All who wait for one node share one watch, and its share of what may be watched: ten thousand
//! readers behind a writer leave room for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, Shared, WeakShared};
use futures_util::{FutureExt, future};

use super::Session;
use crate::client::{Failure, Fate, Refusal};

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
}

impl WatchedNodes {
    fn watches(&self) -> MutexGuard<'_, Watches> {
        // Every critical section leaves them valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Waits until a node may have gone, and returns whether that came as news. One that is not there when it is to be watched has gone.
    ///
    /// Callers who come while others wait join their watch. It has not fired yet, so it tells of whatever happened after the look by which
    /// the node was there. Each of them drives it: nobody depends on another one who is kept without being polled.
    ///
    /// # Cancel safety
    /// The watch goes with the last one who waits for it.
    pub(crate) async fn node_changed(self: &Arc<Self>, path: &str) -> Result<bool, Failure> {
        Ok(self.join_watch(path).await?)
    }

    fn join_watch(self: &Arc<Self>, path: &str) -> Shared<Watching> {
        let mut watches = self.watched.watches();
        if let Some(watch) = watches.by_path.get(path).and_then(|known| known.watch.upgrade()) {
            return watch;
        }
        watches.last_number += 1;
        let (number, path) = (watches.last_number, path.to_owned());
        let entry = WatchEntry { session: self.clone(), path: path.clone(), number };
        let watch = async move { entry.session.watch_once(&entry.path).await }.boxed().shared();
        // One that nobody has polled has not come to its end.
        if let Some(weak) = watch.downgrade() {
            watches.by_path.insert(path, NumberedWatch { number, watch: weak });
        }
        watch
    }

    async fn watch_once(&self, path: &str) -> Result<bool, Refusal> {
        let bytes = u32::try_from(path.len() + self.chroot).unwrap_or(u32::MAX);
        if bytes as usize > super::WATCHABLE {
            // Somebody else's name, too long for any watch. In the queue for a share it would keep all others from theirs.
            return future::pending().await;
        }
        // It is never closed.
        let _kept = self.watchable.acquire_many(bytes).await;
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

    const PATH: &str = "/somebody-elses";

    #[tokio::test]
    async fn those_who_wait_for_one_node_share_a_watch_that_outlives_each_of_them_and_depends_on_none() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let truth = server.client().await.unwrap();
        truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        let backend = connect(&ZkConfig::new(server.url()), ClientCrate::ZookeeperClient).await.unwrap();
        let session = backend.sessions.current().await;
        let is_free =
            || session.watched.watches().by_path.is_empty() && session.watchable.available_permits() == WATCHABLE;
        {
            let mut kept = pin!(session.node_changed(PATH));
            let mut others: Vec<_> = (0..100).map(|_| Box::pin(session.node_changed(PATH))).collect();
            let mut first = Box::pin(session.node_changed(PATH));
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
        assert!(!soon("it is gone", PROMPTLY, session.node_changed(PATH)).await.unwrap());
        truth.create(PATH, b"", NodeKind::Persistent).await.unwrap();
        assert!(session.node_changed(PATH).now_or_never().is_none());
        assert!(is_free(), "something is left of a wait that was dropped");
    }
}
