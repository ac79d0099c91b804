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
    fn judge(&self, stem: &str, path: &str, stat: &Stat) -> Result<(), Failure> {
        if self.links.is_ours(stem, path, stat) {
            return Ok(());
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

    /// A write of this session's in its turn, which its server answers when it knows all that was committed before. The node
    /// goes again at once.
    pub(super) fn sync(self: &Arc<Self>) -> Response<'static, ()> {
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}sync-{number}", self.sign);
        let made = self.prove(Priority::Normal, &path);
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
                links.end();
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

    pub(super) fn read_all(&self, paths: &[String]) -> Response<'static, Vec<Option<Node>>> {
        let read: Vec<_> = paths.iter().map(|path| self.read(Priority::Normal, path, false)).collect();
        Box::pin(async move { join_all(read).await.into_iter().collect() })
    }

    pub(super) fn delete(&self, path: &str) -> Response<'static, bool> {
        let path = path.to_owned();
        self.ask(Priority::Detached, async move |client| match client.delete(&path, None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(error),
        })
    }
}
