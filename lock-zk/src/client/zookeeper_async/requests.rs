//! The requests that the trait is made of, each judged by whether its answer is of our session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, mem};

use futures_util::future::{BoxFuture, join, join_all};
use lock_core::clock::BootInstant;
use tokio::runtime::Handle;
use zookeeper_async::{Acl, CreateMode, Stat, ZkError};

use super::directories::Directories;
use super::judged::Judged;
use super::link_monitor::LinkMonitor;
use super::scheduler::Scheduler;
use super::watches::Watches;
use super::{Created, Departure, Failure, Fate, Names, Node, Priority, Response};

/// The number of nodes that are deleted again, at most. Further ones go with the session.
const MOST_LEFT: usize = 1_000;

/// The things that requests need. They outlive the connection by those that are under way.
pub(super) struct Requests {
    scheduler: Scheduler,
    links: Arc<LinkMonitor>,
    pub(super) watches: Arc<Watches>,
    pub(super) runtime: Handle,
    directories: Directories,
    /// The rights to what is made.
    access: Vec<Acl>,
    /// The beginning of the paths of heartbeats.
    sign: String,
    heartbeats: AtomicU64,
    syncs: AtomicU64,
    /// The nodes of heartbeats and proofs whose deletion was not answered.
    left: Arc<Mutex<Vec<String>>>,
}

impl fmt::Debug for Requests {
    /// Not for whom its nodes are: an id may be made of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheduler, links, sign, .. } = self;
        f.debug_struct("Requests")
            .field("scheduler", scheduler)
            .field("links", links)
            .field("sign", sign)
            .finish_non_exhaustive()
    }
}

impl Requests {
    /// The requests of a session whose heartbeats make nodes of which the paths begin with this.
    pub(super) fn new(
        scheduler: Scheduler,
        links: Arc<LinkMonitor>,
        watches: Arc<Watches>,
        directories: Directories,
        access: Vec<Acl>,
        sign: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            scheduler,
            links,
            watches,
            runtime: Handle::current(),
            directories,
            access,
            sign,
            heartbeats: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            left: Arc::default(),
        })
    }

    pub(super) fn session(&self) -> i64 {
        self.links.session()
    }

    pub(super) fn unanswered_since(&self) -> Option<BootInstant> {
        self.scheduler.unanswered_since()
    }

    /// Ends the session, and every request.
    pub(super) fn close(&self) {
        self.links.close();
        self.scheduler.close();
    }

    /// Makes a node, provided that our session is what makes it. Nothing is sent if it was given up before. That it was refused is told
    /// with a proof only: it may have been made, and the refusal be that of another request.
    pub(super) fn make(
        self: &Arc<Self>,
        path: &str,
        data: Vec<u8>,
        mode: CreateMode,
        departure: Departure,
    ) -> Response<'static, Created> {
        let (stem, access, links) = (path.to_owned(), self.access.clone(), self.links.clone());
        let made = self.scheduler.send(Priority::Normal, async move |client, connection| {
            if !departure.leave() {
                // Nobody waits for it any more.
                return Err(ZkError::ConnectionLoss);
            }
            let (path, stat) = client.create2(&stem, data, access, mode).await?;
            let is_asked_for = match mode {
                CreateMode::EphemeralSequential => path.strip_prefix(&*stem).is_some_and(is_number),
                _ => path == stem,
            };
            if links.is_ours(connection, is_asked_for, stat.ephemeral_owner) {
                return Ok(Created { path, czxid: stat.czxid });
            }
            if !is_asked_for {
                // Whether it was made is not known.
                return Err(ZkError::ConnectionLoss);
            }
            // The crate has gone on in another session.
            let _ = client.delete(&path, None).await;
            Err(ZkError::SessionExpired)
        });
        let requests = self.clone();
        Box::pin(async move {
            let made = made.await;
            match &made.outcome {
                Err(failure) if !matches!(failure.fate, Fate::Unknown | Fate::Ended) => {
                    made.proven_by(&requests.proof(Priority::Normal).await)
                }
                _ => made.outcome,
            }
        })
    }

    /// Makes a node, whose answer names the session that made it, and deletes the one of the heartbeat before. Behind the answer go the
    /// deletions that were not answered.
    pub(super) fn heartbeat(self: &Arc<Self>) -> Response<'static, ()> {
        let number = self.heartbeats.fetch_add(1, Ordering::Relaxed);
        let proof = self.prove(Priority::Urgent, format!("{}{number}", self.sign));
        if let Some(before) = number.checked_sub(1) {
            self.take_back(format!("{}{before}", self.sign));
        }
        let requests = self.clone();
        Box::pin(async move {
            proof.await.outcome?;
            let left = mem::take(&mut *requests.left.lock().unwrap_or_else(PoisonError::into_inner));
            left.into_iter().for_each(|path| requests.take_back(path));
            Ok(())
        })
    }

    /// A write of this session's in its turn, which its server answers when it knows all that was committed before.
    pub(super) fn sync(self: &Arc<Self>) -> Response<'static, ()> {
        let proof = self.proof(Priority::Normal);
        Box::pin(async move { proof.await.outcome })
    }

    /// Makes a node, whose answer shows that answers are those to their requests. The node goes again at once.
    fn proof(self: &Arc<Self>, priority: Priority) -> BoxFuture<'static, Judged<()>> {
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}sync-{number}", self.sign);
        let proof = self.prove(priority, path.clone());
        self.take_back(path);
        proof
    }

    /// Deletes a node that has proven what it was to prove.
    fn take_back(&self, path: String) {
        let (left, links) = (self.left.clone(), self.links.clone());
        drop(self.scheduler.send(Priority::Detached, async move |client, connection| {
            let deleted = client.delete(&path, None).await;
            let judged = links.judge(deleted.map_err(Failure::from), connection);
            if judged.is_err_and(|failure| failure.fate == Fate::Unknown) {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                if left.len() < MOST_LEFT {
                    left.push(path);
                }
            }
            deleted
        }));
    }

    /// Makes a node that nobody else makes, in a directory that is not empty.
    fn prove(&self, priority: Priority, path: String) -> BoxFuture<'static, Judged<()>> {
        let (access, links) = (self.access.clone(), self.links.clone());
        self.scheduler.send(priority, async move |client, connection| {
            match client.create2(&path, Vec::new(), access, CreateMode::Ephemeral).await {
                Ok((made, stat)) if links.is_ours(connection, made == path, stat.ephemeral_owner) => Ok(()),
                Ok(_) => Err(ZkError::ConnectionLoss),
                // Refused as another request is.
                Err(ZkError::NoNode | ZkError::NodeExists | ZkError::BadVersion | ZkError::NotEmpty) => {
                    links.doubt(connection);
                    Err(ZkError::ConnectionLoss)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Makes a directory, and every one above it.
    pub(super) fn make_directory(&self, path: &str) -> Response<'static, ()> {
        self.directories.make(path)
    }

    pub(super) fn children(&self, path: &str) -> Response<'static, Names> {
        let listed = self.list(path, false);
        Box::pin(async move { listed.await.outcome.map(Arc::new) })
    }

    /// The names in a directory, and behind them a proof that the answer is the one to this request.
    pub(super) fn children_proven(self: &Arc<Self>, path: &str, watch: bool) -> Response<'static, Vec<String>> {
        let (listed, proof) = (self.list(path, watch), self.proof(Priority::Normal));
        Box::pin(async move { listed.await.proven_by(&proof.await) })
    }

    fn list(&self, path: &str, watch: bool) -> BoxFuture<'static, Judged<Vec<String>>> {
        let path = path.to_owned();
        self.scheduler.send(Priority::Normal, async move |client, _| client.get_children(&path, watch).await)
    }

    /// Reads a node, and has the server tell of its next change.
    pub(super) fn watch(&self, path: &str) -> Response<'static, Option<Node>> {
        let read = self.look_at(Priority::Normal, path, true);
        Box::pin(async move { read.await.outcome })
    }

    /// Reads nodes, and behind them a proof that the answers are those to these requests.
    pub(super) fn read_all(self: &Arc<Self>, paths: &[String]) -> Response<'static, Vec<Option<Node>>> {
        let read: Vec<_> = paths.iter().map(|path| self.look_at(Priority::Normal, path, false)).collect();
        let proof = self.proof(Priority::Normal);
        Box::pin(async move {
            let (read, proof) = join(join_all(read), proof).await;
            read.into_iter().map(|read| read.proven_by(&proof)).collect()
        })
    }

    /// Reads a node. That it is gone is told with a proof only.
    pub(super) fn read_one(self: &Arc<Self>, priority: Priority, path: &str) -> Response<'static, Option<Node>> {
        let (requests, read) = (self.clone(), self.look_at(priority, path, false));
        Box::pin(async move {
            let read = read.await;
            match read.outcome {
                Ok(None) => read.proven_by(&requests.proof(priority).await),
                outcome => outcome,
            }
        })
    }

    fn look_at(&self, priority: Priority, path: &str, watch: bool) -> BoxFuture<'static, Judged<Option<Node>>> {
        let path = path.to_owned();
        self.scheduler.send(priority, async move |client, _| match client.get_data(&path, watch).await {
            Ok((data, stat)) => {
                let Stat { czxid, ctime: made_at, mtime: changed_at, version, ephemeral_owner: session, .. } = stat;
                Ok(Some(Node { data, czxid, made_at, changed_at, version, session }))
            }
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Deletes a node. That it was gone is told with a proof only.
    pub(super) fn delete(self: &Arc<Self>, path: &str) -> Response<'static, bool> {
        let (requests, path) = (self.clone(), path.to_owned());
        let deleted =
            self.scheduler.send(Priority::Detached, async move |client, _| match client.delete(&path, None).await {
                Ok(()) => Ok(true),
                Err(ZkError::NoNode) => Ok(false),
                Err(error) => Err(error),
            });
        Box::pin(async move {
            let deleted = deleted.await;
            match deleted.outcome {
                Ok(false) => deleted.proven_by(&requests.proof(Priority::Normal).await),
                outcome => outcome,
            }
        })
    }
}

/// Whether this is the number of a sequential node.
fn is_number(text: &str) -> bool {
    text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
    use lock_testkit::testing::{PROMPTLY, installed, soon};
    use lock_testkit_servers::zookeeper::ZooKeeperServer;

    use super::super::ZookeeperAsync;
    use crate::client::{Connection, Fate};

    #[tokio::test]
    async fn a_node_that_was_made_is_not_told_as_refused_when_the_next_answer_is_taken_for_its_own() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let (link, truth) = (Proxy::to(server.address(), Protocol::ZooKeeper).unwrap(), server.client().await.unwrap());
        let connection = soon("a session", PROMPTLY, ZookeeperAsync::to(&link.address())).await;
        let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToClient).on_request(1, "/lock/made"));
        // Both are on their way before an answer comes. The second one's is that there is no such node.
        let (made, gone) = (connection.create("/lock/made", b""), connection.delete("/lock/nothing"));
        let failure = soon("an outcome", PROMPTLY, made).await.unwrap_err();
        lost.proven().unwrap();
        assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
        assert!(truth.exists("/lock/made").await.unwrap().is_some());
        drop(gone);
    }
}
