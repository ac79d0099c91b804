//! The crate `zookeeper-client` behind our trait.
//!
//! [`scheduler`] decides which requests are sent at the call. The others wait ([`waiting`]), because too many are under way for a heartbeat
//! behind them, or until the end of the runtime's turn: what many tasks ask for at one moment is sent together ([`sending`]), and each
//! has its own answer (`docs/decisions/0026-requests-to-zookeeper-go-together.md`).

mod connect;
mod error;
mod flush;
mod pending;
mod scheduler;
mod sending;
#[cfg(feature = "tls")]
mod tls;
mod transactions;
mod waiting;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture, join_all, try_join_all};
use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::Mutex;
use zookeeper_client::{
    Acl, Acls, Client, CreateMode, Error, MultiReadResult, OneshotWatcher, SessionState, StateWatcher,
};

#[cfg(feature = "tls")]
pub(crate) use tls::check as check_tls;

use super::departure::Departure;
use super::{
    Claim, ConnectOptions, Connection, Created, Failure, Fate, LONGEST_BACKLOG, LinkChange, LinkState, MOST_BYTES,
    Names, NewNode, Node, NodeChange, Priority, ReadNodes, Response,
};
use scheduler::Scheduler;
use waiting::{Exchange, Place};

/// The number of nodes that one request reads, at most.
const CHUNK: usize = 500;

/// The node to which heartbeats go. Nobody makes it, so that a heartbeat changes nothing; the refusal is agreed upon by a
/// quorum as any other outcome of a write is.
const HEARTBEAT_NODE: &str = "/lock-zk-beat";

/// One session, by `zookeeper-client`.
pub(crate) struct ZookeeperClient {
    id: i64,
    asked_at: BootInstant,
    timeout: Duration,
    scheduler: Scheduler,
    states: Mutex<StateWatcher>,
    /// The rights to what is made, and the number of bytes that they take for each node.
    access: Arc<[Acl]>,
    access_bytes: usize,
}

impl ZookeeperClient {
    /// A new session with one of the servers.
    pub(crate) async fn connect(options: &ConnectOptions) -> Result<Self, Failure> {
        let asked_at = SystemClock.now();
        let client = connect::open(options).await?;
        let mut states = client.state_watcher();
        states.state();
        let (id, timeout) = (client.session_id().0, client.session_timeout());
        let (scheduler, backlog) = Scheduler::new(client, format!("/{}", options.prefix));
        tokio::spawn(sending::run(backlog));
        let (states, access) = (Mutex::new(states), connect::acl(&options.access).into());
        Ok(Self { id, asked_at, timeout, scheduler, states, access, access_bytes: options.access.bytes() })
    }

    fn place(&self, stem: &str, data: &[u8], directory: &str, departure: &Departure) -> Place {
        let (data, access, departure) = (data.to_vec(), self.access.clone(), departure.clone());
        let access_bytes = self.access_bytes;
        Place { stem: stem.to_owned(), directory: directory.into(), data, access, access_bytes, departure }
    }

    fn exchange_of(&self, present: Option<&str>, old: &[String], new: &[NewNode], data: &[u8]) -> Exchange {
        let (present, access) = (present.map(str::to_owned), self.access.clone());
        let (old, new, data, access_bytes) = (old.to_vec(), new.to_vec(), data.to_vec(), self.access_bytes);
        Exchange { present, old, place: None, new, data, access, access_bytes }
    }

    /// Reads by as few requests as can be, all of them on their way at once.
    fn read(&self, priority: Priority, paths: &[String]) -> Vec<Response<'static, ReadNodes>> {
        let read = |chunk: &[String]| {
            let chunk = chunk.to_vec();
            let read = self.scheduler.send(priority, async move |client: Arc<Client>| {
                let mut reader = client.new_multi_reader();
                for path in &chunk {
                    reader.add_get_data(path)?;
                }
                Ok(chunk.into_iter().zip(reader.commit().await?).collect::<Vec<_>>())
            });
            Box::pin(async move { Ok(read.await?.into_iter().map(|(path, read)| (path, node(read))).collect()) })
                as Response<'static, ReadNodes>
        };
        chunks(paths).map(read).collect()
    }
}

impl fmt::Debug for ZookeeperClient {
    /// Not for whom its nodes are: an id may be made of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, timeout, scheduler, .. } = self;
        f.debug_struct("ZookeeperClient")
            .field("id", id)
            .field("timeout", timeout)
            .field("scheduler", scheduler)
            .finish_non_exhaustive()
    }
}

/// These paths, in order, as many together as one request may have.
fn chunks(mut paths: &[String]) -> impl Iterator<Item = &[String]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |path: &&String| {
            bytes += path.len();
            bytes <= MOST_BYTES
        };
        let fitting = paths.iter().take(CHUNK).take_while(fits).count();
        let (chunk, rest) = paths.split_at_checked(fitting.max(1))?;
        paths = rest;
        Some(chunk)
    })
}

impl Connection for ZookeeperClient {
    fn id(&self) -> i64 {
        self.id
    }

    fn asked_at(&self) -> BootInstant {
        self.asked_at
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn link_changed(&self) -> LinkChange<'_> {
        Box::pin(async move {
            match self.states.lock().await.changed().await {
                SessionState::SyncConnected => LinkState::Connected,
                // A read-only server commits nothing.
                SessionState::Disconnected | SessionState::ConnectedReadOnly => LinkState::Suspended,
                SessionState::AuthFailed | SessionState::Expired | SessionState::Closed => LinkState::Ended,
            }
        })
    }

    fn heartbeat(&self) -> Response<'static, ()> {
        let pending = self.scheduler.pending().clone();
        let mark = pending.mark();
        let deleted = self
            .scheduler
            .send(Priority::Urgent, async move |client: Arc<Client>| client.delete(HEARTBEAT_NODE, None).await);
        Box::pin(async move {
            match deleted.await {
                // Missing rights, too, are found by the leader.
                Ok(()) | Err(Failure { fate: Fate::Missing | Fate::Denied, .. }) => {
                    pending.answered_behind(mark);
                    Ok(())
                }
                Err(failure) => Err(failure),
            }
        })
    }

    fn unanswered_since(&self) -> Option<BootInstant> {
        self.scheduler.pending().unanswered_since()
    }

    fn close(&self) {
        self.scheduler.close();
    }

    fn append(
        &self,
        stem: &str,
        data: &[u8],
        directory: &str,
        departure: &Departure,
    ) -> (Response<'static, Created>, Response<'static, Names>) {
        self.scheduler.append(self.place(stem, data, directory, departure))
    }

    fn enqueue(&self, stem: &str, data: &[u8], directory: &str, departure: &Departure) -> Response<'static, Created> {
        self.scheduler.enqueue(self.place(stem, data, directory, departure))
    }

    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Response<'a, Created> {
        let (path, data, access) = (path.to_owned(), data.to_vec(), self.access.clone());
        self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| {
            let options = CreateMode::Ephemeral.with_acls(Acls::new(&access));
            let (stat, _) = client.create(&path, &data, &options).await?;
            Ok(Created { path, czxid: stat.czxid })
        })
    }

    fn claim<'a>(&'a self, directory: &'a str, path: &'a str, data: &[u8]) -> Response<'a, Option<Created>> {
        let claim = Claim { directory: directory.to_owned(), path: path.to_owned(), data: data.to_vec() };
        let claimed = self.claim_all(&[claim]);
        Box::pin(async move { Ok(claimed.await?.and_then(|mut nodes| nodes.pop())) })
    }

    fn claim_all(&self, claims: &[Claim]) -> Response<'static, Option<Vec<Created>>> {
        let (claims, access) = (claims.to_vec(), self.access.clone());
        self.scheduler.send(Priority::Normal, |client| transactions::claim_all(client, claims, access))
    }

    fn claim_beside(
        &self,
        empty: &str,
        new: &[NewNode],
        data: &[u8],
        directory: &str,
    ) -> (Response<'static, Option<Vec<Created>>>, Response<'static, Names>) {
        let (empty, new, data, access) = (empty.to_owned(), new.to_vec(), data.to_vec(), self.access.clone());
        let claim = |client| transactions::claim_beside(client, empty, new, data, access);
        self.scheduler.send_and_list(claim, directory)
    }

    fn make_directory<'a>(&'a self, path: &'a str) -> Response<'a, ()> {
        let made = super::directories(path).map(|directory| {
            let (directory, access) = (directory.to_owned(), self.access.clone());
            self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| {
                client.create(&directory, &[], &CreateMode::Container.with_acls(Acls::new(&access))).await.map(drop)
            })
        });
        let made = join_all(made.collect::<Vec<_>>());
        let note = self.scheduler.directory_made();
        Box::pin(async move {
            let made = super::made(made.await);
            if made.is_ok() {
                note();
            }
            made
        })
    }

    fn children<'a>(&'a self, path: &'a str) -> Response<'a, Names> {
        self.scheduler.list(path)
    }

    fn watch_children<'a>(&'a self, path: &'a str) -> Response<'a, (Vec<String>, NodeChange)> {
        let path = path.to_owned();
        self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| {
            let (names, watcher) = client.list_and_watch_children(&path).await?;
            Ok((names, changed(watcher)))
        })
    }

    fn sync<'a>(&'a self, path: &'a str) -> Response<'a, ()> {
        let path = path.to_owned();
        self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| client.sync(&path).await)
    }

    fn watch<'a>(&'a self, path: &'a str) -> Response<'a, Option<NodeChange>> {
        let path = path.to_owned();
        // Not by asking whether it exists: that would leave a watch on a node that is gone, and wake nobody.
        self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| {
            match client.get_and_watch_data(&path).await {
                Ok((_, _, watcher)) => Ok(Some(changed(watcher))),
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn read_all(&self, paths: &[String]) -> Response<'_, Vec<Option<Node>>> {
        let chunks = self.read(Priority::Normal, paths);
        Box::pin(async move { try_join_all(chunks).await?.into_iter().flatten().map(|(_, node)| node).collect() })
    }

    fn read_held(&self, paths: &[String]) -> Vec<Response<'static, ReadNodes>> {
        self.read(Priority::Urgent, paths)
    }

    /// A transaction, and in order: what is asked for later travels behind it.
    fn exchanged(&self, _attempt: GrantId) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }

    fn exchange(&self, _attempt: GrantId, old: &[String], new: &[NewNode], data: &[u8]) -> Response<'_, Vec<String>> {
        let exchange = Arc::new(self.exchange_of(None, old, new, data));
        self.scheduler.send(Priority::Normal, |client| transactions::exchange(client, exchange))
    }

    fn hand_over(&self, from: &str, to: &str) -> Response<'_, ()> {
        self.scheduler.hand_over(self.exchange_of(Some(to), &[from.to_owned()], &[], &[]))
    }

    fn hands_permits_over(&self) -> bool {
        true
    }

    fn hand_permits_over(
        &self,
        holder: &[String],
        waiter: &str,
        new: &[NewNode],
        data: &[u8],
    ) -> (Response<'static, ()>, Response<'static, Vec<String>>) {
        let exchange = self.exchange_of(None, holder, new, data);
        self.scheduler.hand_permits_over(Exchange { place: Some(waiter.to_owned()), ..exchange })
    }

    fn write_beside(&self, holder: &str, path: &str, data: &[u8], version: Option<i32>) -> Response<'_, ()> {
        let (holder, path, data) = (holder.to_owned(), path.to_owned(), data.to_vec());
        let access = self.access.clone();
        self.scheduler.send(Priority::Normal, move |client| {
            transactions::write_beside(client, holder, path, data, version, access)
        })
    }

    fn delete_unchanged(&self, path: &str, version: i32) -> Response<'_, bool> {
        let path = path.to_owned();
        self.scheduler.send(Priority::Normal, async move |client: Arc<Client>| {
            match client.delete(&path, Some(version)).await {
                Ok(()) => Ok(true),
                Err(Error::NoNode | Error::BadVersion) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn delete(&self, path: &str) -> Response<'static, bool> {
        self.scheduler.delete(path)
    }
}

/// Resolves when this has seen something, or can see nothing any more.
fn changed(watcher: OneshotWatcher) -> NodeChange {
    // The crate panics when its own task is gone with the runtime: then nothing is watched any more.
    Box::pin(async move { drop(AssertUnwindSafe(watcher.changed()).catch_unwind().await) })
}

fn node(result: MultiReadResult) -> Result<Option<Node>, Failure> {
    match result {
        MultiReadResult::Data { data, stat } => {
            let (made_at, changed_at, session) = (stat.ctime, stat.mtime, stat.ephemeral_owner);
            Ok(Some(Node { data, czxid: stat.czxid, made_at, changed_at, version: stat.version, session }))
        }
        MultiReadResult::Error { err: Error::NoNode } => Ok(None),
        MultiReadResult::Error { err } => Err(err.into()),
        _ => Err(Failure { fate: Fate::Refused, source: "the answer is not to what was asked".into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_has_more_paths_than_servers_take() {
        let lengths = |paths: &[String]| chunks(paths).map(<[String]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(&vec!["/a".to_owned(); CHUNK + 1]), [CHUNK, 1]);
        let long = "x".repeat(MOST_BYTES / 2);
        assert_eq!(lengths(&[long.clone(), long.clone(), "/a".to_owned()]), [2, 1]);
        assert_eq!(lengths(&[long.repeat(3), long]), [1, 1], "one that is too long goes by itself");
        assert!(lengths(&[]).is_empty());
    }
}
