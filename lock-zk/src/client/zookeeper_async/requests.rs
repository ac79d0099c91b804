//! The requests that the trait is made of, each judged by whether its answer is of our session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use lock_core::clock::BootInstant;
use tokio::runtime::Handle;
use zookeeper_async::{Acl, CreateMode, Stat, ZkError, ZkResult, ZooKeeper};

use super::directories::Directories;
use super::link_monitor::LinkMonitor;
use super::scheduler::Scheduler;
use super::watches::Watches;
use super::{Created, Failure, Fate, Node, Priority, Response};

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
        })
    }

    /// Hands a request in, and answers what became of it.
    fn ask<T, F>(
        &self,
        priority: Priority,
        request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static,
    ) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send,
    {
        self.scheduler.send(priority, request)
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

    /// Makes a node, provided that our session is what makes it.
    pub(super) fn make(self: &Arc<Self>, path: &str, data: Vec<u8>, mode: CreateMode) -> Response<'static, Created> {
        self.make_in(Priority::Normal, path, data, mode)
    }

    fn make_in(
        self: &Arc<Self>,
        priority: Priority,
        path: &str,
        data: Vec<u8>,
        mode: CreateMode,
    ) -> Response<'static, Created> {
        let (requests, stem) = (self.clone(), path.to_owned());
        let access = self.access.clone();
        let made = self.ask(priority, {
            let stem = stem.clone();
            async move |client| client.create2(&stem, data, access, mode).await
        });
        Box::pin(async move {
            let (path, stat) = made.await?;
            requests.judge(&stem, &path, &stat)?;
            Ok(Created { path, czxid: stat.czxid })
        })
    }

    /// Whether the answer is to this request, and of our session.
    fn judge(self: &Arc<Self>, stem: &str, path: &str, stat: &Stat) -> Result<(), Failure> {
        if self.links.is_ours(stem, path, stat.ephemeral_owner) {
            return Ok(());
        }
        if !self.links.is_over() {
            return Err(Failure { fate: Fate::Unknown, source: "the answer is that to another request".into() });
        }
        if path.starts_with(stem) {
            drop(self.delete(path));
        }
        Err(Failure { fate: Fate::Ended, source: "the client crate has gone on in another session".into() })
    }

    /// Makes a node, whose answer names the session that made it, and deletes the one of the heartbeat before.
    pub(super) fn heartbeat(self: &Arc<Self>) -> Response<'static, ()> {
        let number = self.heartbeats.fetch_add(1, Ordering::Relaxed);
        let made = self.prove(Priority::Urgent, &format!("{}{number}", self.sign));
        if let Some(before) = number.checked_sub(1) {
            drop(self.delete(&format!("{}{before}", self.sign)));
        }
        made
    }

    /// A write of this session's in its turn, which its server answers when it knows all that was committed before.
    pub(super) fn sync(self: &Arc<Self>) -> Response<'static, ()> {
        self.proof(Priority::Normal)
    }

    /// Makes a node, whose answer shows that answers are those to their requests. The node goes again at once.
    fn proof(self: &Arc<Self>, priority: Priority) -> Response<'static, ()> {
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}sync-{number}", self.sign);
        let made = self.prove(priority, &path);
        drop(self.delete(&path));
        made
    }

    /// Makes a node that nobody else makes.
    fn prove(self: &Arc<Self>, priority: Priority, path: &str) -> Response<'static, ()> {
        let made = self.make_in(priority, path, Vec::new(), CreateMode::Ephemeral);
        let links = self.links.clone();
        Box::pin(async move {
            let made = made.await;
            if let Err(Failure { fate: Fate::Missing | Fate::Exists, .. }) = made {
                // Its directory is not empty: the crate takes answers for those to other requests.
                links.doubt();
            }
            made.map(drop)
        })
    }

    /// Makes a directory, and every one above it.
    pub(super) fn make_directory(&self, path: &str) -> Response<'static, ()> {
        self.directories.make(path)
    }

    pub(super) fn children(&self, path: &str, watch: bool) -> Response<'static, Vec<String>> {
        let path = path.to_owned();
        self.ask(Priority::Normal, async move |client| client.get_children(&path, watch).await)
    }

    /// The names in a directory, and behind them a proof that the answer is the one to this request.
    pub(super) fn children_proven(self: &Arc<Self>, path: &str, watch: bool) -> Response<'static, Vec<String>> {
        let (listed, proof) = (self.children(path, watch), self.sync());
        Box::pin(async move { behind(listed.await, proof).await })
    }

    pub(super) fn read(&self, priority: Priority, path: &str, watch: bool) -> Response<'static, Option<Node>> {
        let path = path.to_owned();
        let read = self.ask(priority, async move |client| client.get_data(&path, watch).await);
        Box::pin(async move {
            match read.await {
                Ok((data, stat)) => {
                    let Stat { czxid, ctime: made_at, mtime: changed_at, version, ephemeral_owner: session, .. } = stat;
                    Ok(Some(Node { data, czxid, made_at, changed_at, version, session }))
                }
                Err(failure) if failure.fate == Fate::Missing => Ok(None),
                Err(failure) => Err(failure),
            }
        })
    }

    /// Reads nodes, and behind them a proof that the answers are those to these requests.
    pub(super) fn read_all(self: &Arc<Self>, paths: &[String]) -> Response<'static, Vec<Option<Node>>> {
        let read: Vec<_> = paths.iter().map(|path| self.read(Priority::Normal, path, false)).collect();
        let proof = self.sync();
        Box::pin(async move { behind(join_all(read).await.into_iter().collect(), proof).await })
    }

    /// Reads a node by which a lock is held. That it is gone is told with a proof only.
    pub(super) fn read_held(self: &Arc<Self>, path: &str) -> Response<'static, Option<Node>> {
        let (requests, read) = (self.clone(), self.read(Priority::Urgent, path, false));
        Box::pin(async move {
            match read.await {
                Ok(None) => behind(Ok(None), requests.proof(Priority::Urgent)).await,
                read => read,
            }
        })
    }

    /// Deletes a node. That it was gone is told with a proof only.
    pub(super) fn delete(self: &Arc<Self>, path: &str) -> Response<'static, bool> {
        let (requests, path) = (self.clone(), path.to_owned());
        let deleted = self.ask(Priority::Detached, async move |client| match client.delete(&path, None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(error),
        });
        Box::pin(async move {
            match deleted.await {
                Ok(false) => behind(Ok(false), requests.proof(Priority::Normal)).await,
                deleted => deleted,
            }
        })
    }
}

/// An answer that counts if the one to a request behind it does.
async fn behind<T>(answer: Result<T, Failure>, proof: Response<'_, ()>) -> Result<T, Failure> {
    proof.await?;
    answer
}
