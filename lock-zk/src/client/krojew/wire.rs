//! The requests that the trait is made of, each judged by whether its answer is of our session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use lock_core::clock::BootInstant;
use tokio::runtime::Handle;
use zookeeper_async::{Acl, CreateMode, Stat, ZkError, ZkResult, ZooKeeper};

use super::directories::Directories;
use super::links::Links;
use super::outbox::Outbox;
use super::watches::Watches;
use super::{Answer, Created, Fate, Fault, Manner, Node};

/// What requests need; it outlives the connection by those that are under way.
pub(super) struct Wire {
    outbox: Outbox,
    links: Arc<Links>,
    pub(super) watches: Arc<Watches>,
    pub(super) runtime: Handle,
    directories: Directories,
    /// Who may touch what is made.
    access: Vec<Acl>,
    /// What the paths of beats begin with.
    sign: String,
    beats: AtomicU64,
    syncs: AtomicU64,
}

impl fmt::Debug for Wire {
    /// Not for whom its nodes are: an id may be made of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outbox, links, sign, .. } = self;
        f.debug_struct("Wire").field("outbox", outbox).field("links", links).field("sign", sign).finish_non_exhaustive()
    }
}

impl Wire {
    /// The wire of a session whose beats make nodes of which the paths begin with this.
    pub(super) fn new(
        outbox: Outbox,
        links: Arc<Links>,
        watches: Arc<Watches>,
        directories: Directories,
        access: Vec<Acl>,
        sign: String,
    ) -> Arc<Self> {
        Arc::new(Self {
            outbox,
            links,
            watches,
            runtime: Handle::current(),
            directories,
            access,
            sign,
            beats: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        })
    }

    /// Hands a request in, and answers what became of it.
    fn ask<T, F>(
        &self,
        manner: Manner,
        request: impl FnOnce(Arc<ZooKeeper>) -> F + Send + 'static,
    ) -> Answer<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = ZkResult<T>> + Send,
    {
        self.outbox.send(manner, request)
    }

    pub(super) fn session(&self) -> i64 {
        self.links.session()
    }

    pub(super) fn unanswered_since(&self) -> Option<BootInstant> {
        self.outbox.unanswered_since()
    }

    /// Ends the session, and every request.
    pub(super) fn close(&self) {
        self.links.end();
        self.outbox.close();
    }

    /// Makes a node, provided that our session is what makes it.
    pub(super) fn make(self: &Arc<Self>, path: &str, data: Vec<u8>, mode: CreateMode) -> Answer<'static, Created> {
        self.make_in(Manner::InTurn, path, data, mode)
    }

    fn make_in(
        self: &Arc<Self>,
        manner: Manner,
        path: &str,
        data: Vec<u8>,
        mode: CreateMode,
    ) -> Answer<'static, Created> {
        let (wire, stem) = (self.clone(), path.to_owned());
        let access = self.access.clone();
        let made = self.ask(manner, {
            let stem = stem.clone();
            async move |client| client.create2(&stem, data, access, mode).await
        });
        Box::pin(async move {
            let (path, stat) = made.await?;
            wire.judge(&stem, &path, &stat)?;
            Ok(Created { path, czxid: stat.czxid })
        })
    }

    /// Whether the answer is to this request, and of our session.
    fn judge(&self, stem: &str, path: &str, stat: &Stat) -> Result<(), Fault> {
        if self.links.is_ours(stem, path, stat) {
            return Ok(());
        }
        if path.starts_with(stem) {
            drop(self.delete(path));
        }
        Err(Fault { fate: Fate::Ended, source: "the client crate has gone on in another session".into() })
    }

    /// Makes a node, whose answer names the session that made it, and deletes the one of the beat before.
    pub(super) fn beat(self: &Arc<Self>) -> Answer<'static, ()> {
        let number = self.beats.fetch_add(1, Ordering::Relaxed);
        let made = self.prove(Manner::First, &format!("{}{number}", self.sign));
        if let Some(before) = number.checked_sub(1) {
            drop(self.delete(&format!("{}{before}", self.sign)));
        }
        made
    }

    /// A write of this session's in its turn, which its server answers when it knows all that was committed before. The node
    /// goes again at once.
    pub(super) fn sync(self: &Arc<Self>) -> Answer<'static, ()> {
        let number = self.syncs.fetch_add(1, Ordering::Relaxed);
        let path = format!("{}sync-{number}", self.sign);
        let made = self.prove(Manner::InTurn, &path);
        drop(self.delete(&path));
        made
    }

    /// Makes a node that nobody else makes.
    fn prove(self: &Arc<Self>, manner: Manner, path: &str) -> Answer<'static, ()> {
        let made = self.make_in(manner, path, Vec::new(), CreateMode::Ephemeral);
        let links = self.links.clone();
        Box::pin(async move {
            let made = made.await;
            if let Err(Fault { fate: Fate::Missing | Fate::Exists, .. }) = made {
                // Its directory is not empty: the crate takes answers for those to other requests.
                links.end();
            }
            made.map(drop)
        })
    }

    /// Makes a directory, and every one above it.
    pub(super) fn make_directory(&self, path: &str) -> Answer<'static, ()> {
        self.directories.make(path)
    }

    pub(super) fn children(&self, path: &str, watch: bool) -> Answer<'static, Vec<String>> {
        let path = path.to_owned();
        self.ask(Manner::InTurn, async move |client| client.get_children(&path, watch).await)
    }

    pub(super) fn read(&self, manner: Manner, path: &str, watch: bool) -> Answer<'static, Option<Node>> {
        let path = path.to_owned();
        let read = self.ask(manner, async move |client| client.get_data(&path, watch).await);
        Box::pin(async move {
            match read.await {
                Ok((data, stat)) => {
                    let Stat { czxid, ctime: made_at, ephemeral_owner: session, .. } = stat;
                    Ok(Some(Node { data, czxid, made_at, session }))
                }
                Err(fault) if fault.fate == Fate::Missing => Ok(None),
                Err(fault) => Err(fault),
            }
        })
    }

    pub(super) fn read_all(&self, paths: &[String]) -> Answer<'static, Vec<Option<Node>>> {
        let read: Vec<_> = paths.iter().map(|path| self.read(Manner::InTurn, path, false)).collect();
        Box::pin(async move { join_all(read).await.into_iter().collect() })
    }

    pub(super) fn delete(&self, path: &str) -> Answer<'static, bool> {
        let path = path.to_owned();
        self.ask(Manner::InAnyCase, async move |client| match client.delete(&path, None).await {
            Ok(()) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(error),
        })
    }
}
