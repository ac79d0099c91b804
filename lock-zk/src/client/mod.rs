//! The needs of the locks of a ZooKeeper client: a small trait, so that a second client crate can stand behind it, and the
//! ways in which a request can fail.
//!
//! Every method enqueues its request when it is called, not when its answer is first polled: calls in a row travel in
//! that order, without a round trip between them, and a deletion whose answer nobody waits for is still sent. A listing may travel
//! later than it was asked for, and so shows more; a hand-over may travel later, and behind a deletion of
//! the holder's nodes if its batch was refused: then it fails.
//!
//! The requests that keep a session and its locks, [`heartbeat`](Connection::heartbeat) and
//! [`read_held`](Connection::read_held), wait behind a limited number of other requests only, however many there are.

pub(crate) mod departure;
pub(crate) mod diagnosis;
#[cfg(feature = "zookeeper-async")]
mod zookeeper_async;
mod zookeeper_client;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use lock_core::clock::BootInstant;
use lock_core::{GrantId, Guarantees};

use crate::access::{Access, Credentials};
use crate::tls::Tls;
use departure::Departure;
#[cfg(feature = "zookeeper-async")]
pub(crate) use zookeeper_async::SHORTEST_SESSION;
#[cfg(feature = "zookeeper-async")]
use zookeeper_async::ZookeeperAsync;
use zookeeper_client::ZookeeperClient;
#[cfg(feature = "tls")]
pub(crate) use zookeeper_client::check_tls;

/// The number of bytes of paths and data that one request may have: half of what servers take by default (`jute.maxbuffer`, 1
/// MiB).
pub(crate) const MOST_BYTES: usize = 512 * 1024;

/// The number of requests that wait for their turn, at most. One more is answered [`Fate::Unknown`] at once, and so asked again
/// after a pause. Only deletions are let in beyond: they are about nodes that the client has made, and end with the session.
const LONGEST_BACKLOG: usize = 65_536;

/// The order in which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Priority {
    /// In its turn, if somebody still waits for the answer then.
    Normal,
    /// In its turn, whether somebody waits for the answer or not.
    Detached,
    /// Before all that wait for their turn.
    Urgent,
}

/// The crate by which a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCrate {
    /// `zookeeper-client`
    ZookeeperClient,
    /// `zookeeper-async`
    #[cfg(feature = "zookeeper-async")]
    ZookeeperAsync,
}

impl ClientCrate {
    /// The promises of a client by this crate, where a configuration has these.
    pub(crate) fn guarantees(self, configured: Guarantees) -> Guarantees {
        match self {
            Self::ZookeeperClient => configured,
            #[cfg(feature = "zookeeper-async")]
            Self::ZookeeperAsync => crate::guarantees::without_transactions(configured),
        }
    }

    /// Whether several changes can be made as one.
    pub(crate) fn has_transactions(self) -> bool {
        self == Self::ZookeeperClient
    }

    /// A new session with one of the servers.
    pub(crate) async fn connect(self, options: &ConnectOptions) -> Result<Arc<dyn Connection>, Failure> {
        Ok(match self {
            Self::ZookeeperClient => Arc::new(ZookeeperClient::connect(options).await?),
            #[cfg(feature = "zookeeper-async")]
            Self::ZookeeperAsync => Arc::new(ZookeeperAsync::connect(options).await?),
        })
    }
}

/// An answer that is on its way.
pub(crate) type Response<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// The names in a directory. Whoever asks together with others may share them.
pub(crate) type Names = Arc<Vec<String>>;

/// Resolves when a watched node changed or is gone, or when the session ended.
pub(crate) type NodeChange = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Resolves with the next change of the link.
pub(crate) type LinkChange<'a> = Pin<Box<dyn Future<Output = LinkState> + Send + 'a>>;

/// The servers, and what they are told when a session is opened.
#[derive(Debug, Clone)]
pub(crate) struct ConnectOptions {
    /// `host:port,host:port`
    pub(crate) servers: String,
    /// `/path`, or nothing.
    pub(crate) chroot: String,
    /// Below which directory everything is that a client makes.
    pub(crate) prefix: String,
    /// The session's timeout to ask for.
    pub(crate) timeout: Duration,
    pub(crate) credentials: Option<Credentials>,
    /// By TLS, with these certificates.
    pub(crate) tls: Option<Tls>,
    /// The rights to what is made.
    pub(crate) access: Access,
}

/// A node that this session has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) path: String,
    /// The transaction that made it: grows with every change of the whole server.
    pub(crate) czxid: i64,
}

/// A node that is to be made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NewNode {
    /// Of exactly this path.
    Named(String),
    /// Of this path and the next number of its parent.
    Sequential(String),
}

impl NewNode {
    /// Returns its path, as far as that is known before it is made.
    pub(crate) fn path(&self) -> &str {
        let (Self::Named(path) | Self::Sequential(path)) = self;
        path
    }
}

/// A node that is to be the only one in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) directory: String,
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
}

impl Claim {
    /// Returns the number of bytes of paths, data and rights that it takes in a request, where the rights to one node take this many.
    pub(crate) fn bytes(&self, access_bytes: usize) -> usize {
        3 * self.directory.len() + self.path.len() + self.data.len() + 2 * access_bytes
    }
}

/// The contents of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) czxid: i64,
    /// The time of its making, in ms since 1970 by the server's clock.
    pub(crate) made_at: i64,
    /// The time of its last change, in the same way.
    pub(crate) changed_at: i64,
    /// The number of its changes.
    pub(crate) version: i32,
    /// The session to which it belongs; 0 if it outlives sessions.
    pub(crate) session: i64,
}

/// Nodes that were read, by their paths; `None` for each that is not there, a failure for each that could not be read.
pub(crate) type ReadNodes = Vec<(String, Result<Option<Node>, Failure>)>;

/// The state of the link to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Requests are answered.
    Connected,
    /// No server is reached; the session may go on, if one is reached in time.
    Suspended,
    /// The session is over.
    Ended,
}

/// One session of one client.
pub(crate) trait Connection: fmt::Debug + Send + Sync {
    /// The session's id.
    fn id(&self) -> i64;

    /// Returns the instant before which nobody had asked for the session.
    fn asked_at(&self) -> BootInstant;

    /// Returns for how long the servers keep the session when they hear nothing, as negotiated.
    fn timeout(&self) -> Duration;

    /// Resolves with the next change of the link; never after [`LinkState::Ended`].
    fn link_changed(&self) -> LinkChange<'_>;

    /// Returns when the oldest of the requests was sent that have no answer yet.
    fn unanswered_since(&self) -> Option<BootInstant>;

    /// Ends the session, if the servers can be reached, and every request: whoever waits for one is told that the session has
    /// ended, and nobody who forgets to look can keep it.
    fn close(&self);

    /// Makes a write that changes no lock. Its answer proves that a quorum has committed it, and so that the leader still had the session.
    /// A request sent before it that has no answer by then will never have one: its fate is unknown.
    fn heartbeat(&self) -> Response<'static, ()>;

    /// Makes an ephemeral node whose path is `stem` and the next number of its directory, and lists the directory right behind it:
    /// everybody with a lower number is listed. What several callers ask for at one moment may go together; each has its own answers.
    /// Nothing is made if it is given up before its `departure`.
    fn append(
        &self,
        stem: &str,
        data: &[u8],
        directory: &str,
        departure: &Departure,
    ) -> (Response<'static, Created>, Response<'static, Names>);

    /// Makes such a node as [`append`](Connection::append) does, without the listing.
    fn enqueue(&self, stem: &str, data: &[u8], directory: &str, departure: &Departure) -> Response<'static, Created> {
        self.append(stem, data, directory, departure).0
    }

    /// Makes an ephemeral node of exactly this name.
    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Response<'a, Created>;

    /// Makes an ephemeral node of exactly this path in an empty directory, by a transaction that makes the directory anew and so
    /// fails as long as there is anything in it; `None` then. Only a transaction can; a client without them refuses.
    fn claim<'a>(&'a self, directory: &'a str, path: &'a str, data: &[u8]) -> Response<'a, Option<Created>>;

    /// Makes several such nodes by one transaction, each in a directory of its own: all of them, which have its number then, or none.
    fn claim_all(&self, claims: &[Claim]) -> Response<'static, Option<Vec<Created>>>;

    /// Makes ephemeral nodes, provided that another directory is empty, by a transaction that makes that anew and so fails as long as
    /// there is anything in it; `None` then. Lists `directory` right behind it. Only a transaction can; a client without them refuses.
    fn claim_beside(
        &self,
        empty: &str,
        new: &[NewNode],
        data: &[u8],
        directory: &str,
    ) -> (Response<'static, Option<Vec<Created>>>, Response<'static, Names>);

    /// Makes a directory that the server removes when it has become empty, with every parent that is missing. It need not
    /// travel in the order of its call: whoever asks waits for it.
    fn make_directory<'a>(&'a self, path: &'a str) -> Response<'a, ()>;

    /// The names in a directory. Several callers who ask before any of their requests is sent may have one answer together.
    fn children<'a>(&'a self, path: &'a str) -> Response<'a, Names>;

    /// The names in a directory, for a decision that a wrong answer would spoil: with a proof behind them, where an answer may be that
    /// to another request.
    fn children_proven<'a>(&'a self, path: &'a str) -> Response<'a, Names> {
        self.children(path)
    }

    /// The names in a directory, as surely, and a watch for the next change of them.
    fn watch_children<'a>(&'a self, path: &'a str) -> Response<'a, (Vec<String>, NodeChange)>;

    /// Lets everything that the leader had committed before reach the server of the requests that follow.
    fn sync<'a>(&'a self, path: &'a str) -> Response<'a, ()>;

    /// Watches a node; `None` if there is none, and then no watch is left.
    fn watch<'a>(&'a self, path: &'a str) -> Response<'a, Option<NodeChange>>;

    /// Looks whether a node is there. That it is gone is never the answer to another request.
    fn is_there<'a>(&'a self, path: &'a str) -> Response<'a, bool> {
        let read = self.read_all(&[path.to_owned()]);
        Box::pin(async move { Ok(read.await?.iter().all(Option::is_some)) })
    }

    /// Reads several nodes by one round trip; `None` for each that is not there.
    fn read_all(&self, paths: &[String]) -> Response<'_, Vec<Option<Node>>>;

    /// Reads nodes by which locks are held, before whatever waits for its turn; one answer for each request that this takes.
    fn read_held(&self, paths: &[String]) -> Vec<Response<'static, ReadNodes>>;

    /// Makes ephemeral nodes of an attempt with this data in the place of others: all of it, or nothing. The paths of the new ones, in
    /// order. Where it is no transaction, the new ones are there a while before the old ones are gone, and nothing may be sent if the answer is
    /// dropped.
    fn exchange(&self, attempt: GrantId, old: &[String], new: &[NewNode], data: &[u8]) -> Response<'_, Vec<String>>;

    /// Resolves when no exchange of this attempt is under way any more that was begun before this call. What is asked for then travels behind
    /// them.
    fn exchanged(&self, attempt: GrantId) -> BoxFuture<'_, ()>;

    /// Deletes a node, provided that another one is there: both, or a failure and nothing. Only a transaction can; a client
    /// without them refuses, and whoever has the other node looks for himself.
    fn hand_over(&self, from: &str, to: &str) -> Response<'_, ()>;

    /// Whether it can [hand permits over](Connection::hand_permits_over).
    fn hands_permits_over(&self) -> bool {
        false
    }

    /// Makes ephemeral nodes with this data in the place of a holder's and of a waiter's, all of it or nothing. The holder is told whether that was
    /// done, and the waiter the paths of the new ones. Only a transaction can.
    fn hand_permits_over(
        &self,
        _holder: &[String],
        _waiter: &str,
        _new: &[NewNode],
        _data: &[u8],
    ) -> (Response<'static, ()>, Response<'static, Vec<String>>) {
        let refused = || Failure { fate: Fate::Refused, source: "this client has no transactions".into() };
        (Box::pin(async move { Err(refused()) }), Box::pin(async move { Err(refused()) }))
    }

    /// Changes the data of a node that outlives sessions, if it has this version, or makes it if there is to be none; provided that
    /// `holder` is there: both, or a failure and nothing. Only a transaction can; a client without them refuses.
    fn write_beside(&self, holder: &str, path: &str, data: &[u8], version: Option<i32>) -> Response<'_, ()>;

    /// Deletes a node if it has this version still; whether it did.
    fn delete_unchanged(&self, path: &str, version: i32) -> Response<'_, bool>;

    /// Deletes a node; whether it was there.
    fn delete(&self, path: &str) -> Response<'static, bool>;
}

/// A node that was read: without contents if it may not be read, and `None` if it is not there.
pub(crate) type PermittedNode = Option<Option<Node>>;

/// Reads several nodes by one round trip, or one by one if some may not be read.
pub(crate) async fn read_permitted(
    connection: &dyn Connection,
    paths: &[String],
) -> Result<Vec<PermittedNode>, Failure> {
    match connection.read_all(paths).await {
        Ok(nodes) => return Ok(nodes.into_iter().map(|node| node.map(Some)).collect()),
        Err(failure) if failure.fate == Fate::Denied => {}
        Err(failure) => return Err(failure),
    }
    let read = async |path: &String| match connection.read_all(std::slice::from_ref(path)).await {
        Ok(mut nodes) => Ok(nodes.pop().flatten().map(Some)),
        Err(failure) if failure.fate == Fate::Denied => Ok(Some(None)),
        Err(failure) => Err(failure),
    };
    join_all(paths.iter().map(read)).await.into_iter().collect()
}

/// The failure of a request.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fate: Fate,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// The outcome of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Refused: the node, or its parent, is not there.
    Missing,
    /// Refused: the node is there already.
    Exists,
    /// Refused: the node has another version.
    Changed,
    /// Refused for lack of rights.
    Denied,
    /// Refused by the client crate: an argument is wrong.
    Invalid,
    /// Refused for another reason.
    Refused,
    /// Perhaps carried out.
    Unknown,
    /// The session is over, and with it everything that belongs to it.
    Ended,
}

impl Failure {
    /// The failure of a request for which there was no room in the backlog.
    fn no_room() -> Self {
        Self { fate: Fate::Unknown, source: "too many requests wait for their turn".into() }
    }
}

/// The refusal of what several wait for, such as a session that was to be opened, and its cause.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) fate: Fate,
    pub(crate) cause: Arc<dyn std::error::Error + Send + Sync>,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self { fate: failure.fate, cause: failure.source.into() }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { fate: refusal.fate, source: Box::new(refusal.cause) }
    }
}

/// A directory and every one above it, the highest first.
fn directories(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// Whether a directory is there, by the answers to the requests that make it and its parents. For a directory that is there the answer says
/// so, or denies its making.
fn made(outcomes: impl IntoIterator<Item = Result<(), Failure>>) -> Result<(), Failure> {
    let mut refusal = None;
    for outcome in outcomes {
        match outcome {
            Ok(()) | Err(Failure { fate: Fate::Exists, .. }) => refusal = None,
            // What is missing here has been refused above.
            Err(failure) if failure.fate != Fate::Missing || refusal.is_none() => refusal = Some(failure),
            Err(_) => {}
        }
    }
    refusal.map_or(Ok(()), Err)
}
