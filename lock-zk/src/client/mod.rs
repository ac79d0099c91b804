//! What the locks need of a ZooKeeper client: a small trait, so that a second client crate can stand behind it, and the
//! four ways in which a request can fail.
//!
//! Every method enqueues its request when it is called, not when its answer is first polled: calls in a row travel in
//! that order, without a round trip between them, and a deletion whose answer nobody waits for is still sent.
//!
//! What keeps a session and its locks, [`beat`](Connection::beat) and [`read_held`](Connection::read_held), waits behind a
//! limited number of other requests only, however many there are.

mod kezhuw;
#[cfg(feature = "zookeeper-async")]
mod krojew;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;

use crate::access::{Access, Credentials};
use crate::tls::Tls;
use kezhuw::Kezhuw;
#[cfg(feature = "tls")]
pub(crate) use kezhuw::check_tls;
#[cfg(feature = "zookeeper-async")]
use krojew::Krojew;
#[cfg(feature = "zookeeper-async")]
pub(crate) use krojew::SHORTEST_SESSION;

/// How many bytes of paths and data one request may have: half of what servers take by default (`jute.maxbuffer`, 1 MiB).
pub(crate) const MOST_BYTES: usize = 512 * 1024;

/// In which manner a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// In its turn, if somebody still waits for the answer then.
    InTurn,
    /// In its turn, whether somebody waits for the answer or not.
    InAnyCase,
    /// Before all that wait for their turn.
    First,
}

/// By which crate a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crate {
    /// `zookeeper-client`
    Kezhuw,
    /// `zookeeper-async`
    #[cfg(feature = "zookeeper-async")]
    Krojew,
}

impl Crate {
    /// A new session with one of the servers.
    pub(crate) async fn connect(self, door: &Door) -> Result<Arc<dyn Connection>, Fault> {
        Ok(match self {
            Self::Kezhuw => Arc::new(Kezhuw::connect(door).await?),
            #[cfg(feature = "zookeeper-async")]
            Self::Krojew => Arc::new(Krojew::connect(door).await?),
        })
    }
}

/// An answer that is on its way.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

/// Resolves when a watched node changed or is gone, or when the session ended.
pub(crate) type Change = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Resolves with the next change of the link.
pub(crate) type LinkChange<'a> = Pin<Box<dyn Future<Output = Link> + Send + 'a>>;

/// How to come in.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    /// `host:port,host:port`
    pub(crate) servers: String,
    /// `/path`, or nothing.
    pub(crate) chroot: String,
    /// Below which directory everything is that a client makes.
    #[cfg(feature = "zookeeper-async")]
    pub(crate) prefix: String,
    /// The session's timeout to ask for.
    pub(crate) timeout: Duration,
    pub(crate) credentials: Option<Credentials>,
    /// By TLS, with these certificates.
    pub(crate) tls: Option<Tls>,
    /// Who may touch what is made.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Of exactly this path.
    Exactly(String),
    /// Of this path and the next number of its parent.
    Numbered(String),
}

impl Wanted {
    /// What is known of its path.
    pub(crate) fn path(&self) -> &str {
        let (Self::Exactly(path) | Self::Numbered(path)) = self;
        path
    }
}

/// What is stored in a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) data: Vec<u8>,
    pub(crate) czxid: i64,
    /// When it was made, in ms since 1970 by the server's clock.
    pub(crate) made_at: i64,
    /// The session to which it belongs; 0 if it outlives sessions.
    pub(crate) session: i64,
}

/// Nodes that were read, by their paths; `None` for each that is not there, a fault for each that could not be read.
pub(crate) type Found = Vec<(String, Result<Option<Node>, Fault>)>;

/// What has become of the link to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
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

    /// How long the servers keep the session when they hear nothing, as negotiated.
    fn timeout(&self) -> Duration;

    /// Resolves with the next change of the link; never after [`Link::Ended`].
    fn link_changed(&self) -> LinkChange<'_>;

    /// When the oldest of the requests was sent that have no answer yet.
    fn unanswered_since(&self) -> Option<BootInstant>;

    /// Ends the session, if the servers can be reached, and every request: whoever waits for one is told that the session has
    /// ended, and nobody who forgets to look can keep it.
    fn close(&self);

    /// A write that changes nothing of any lock. Its answer proves that a quorum has committed it, and so that the leader still had
    /// the session. A request that was sent before it and is not answered when it is, never will be: its fate is unknown then.
    fn beat(&self) -> Answer<'static, ()>;

    /// Makes an ephemeral node whose name is `prefix` and the next number of its parent.
    fn create_in_line<'a>(&'a self, prefix: &'a str, data: &[u8]) -> Answer<'a, Created>;

    /// Makes an ephemeral node of exactly this name.
    fn create<'a>(&'a self, path: &'a str, data: &[u8]) -> Answer<'a, Created>;

    /// Makes an ephemeral node of exactly this path in an empty directory, by a transaction that makes the directory anew and so
    /// fails as long as there is anything in it; `None` then. Only a transaction can; a client without them refuses.
    fn claim<'a>(&'a self, directory: &'a str, path: &'a str, data: &[u8]) -> Answer<'a, Option<Created>>;

    /// Makes a directory that the server removes when it has become empty, with every parent that is missing. It need not travel in
    /// the order of its call: whoever asks waits for it.
    fn make_directory<'a>(&'a self, path: &'a str) -> Answer<'a, ()>;

    /// The names in a directory.
    fn children<'a>(&'a self, path: &'a str) -> Answer<'a, Vec<String>>;

    /// The names in a directory, and a watch for the next change of them.
    fn watch_children<'a>(&'a self, path: &'a str) -> Answer<'a, (Vec<String>, Change)>;

    /// Lets everything that the leader had committed before reach the server of the requests that follow.
    fn sync<'a>(&'a self, path: &'a str) -> Answer<'a, ()>;

    /// Watches a node; `None` if there is none, and then no watch is left.
    fn watch<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Change>>;

    /// Reads several nodes by one round trip; `None` for each that is not there.
    fn read_all(&self, paths: &[String]) -> Answer<'_, Vec<Option<Node>>>;

    /// The same of nodes by which locks are held, one answer for each request that this takes.
    fn read_held(&self, paths: &[String]) -> Vec<Answer<'static, Found>>;

    /// Makes ephemeral nodes with this data in the place of others: all of it, or nothing. The paths of the new ones, in
    /// order. Where it is no transaction, the new ones are there a while before the old ones are gone.
    fn exchange(&self, old: &[String], new: &[Wanted], data: &[u8]) -> Answer<'_, Vec<String>>;

    /// Deletes a node, provided that another one is there: both, or a fault and nothing. Only a transaction can; a client
    /// without them refuses, and whoever has the other node looks for himself.
    fn hand_over(&self, from: &str, to: &str) -> Answer<'_, ()>;

    /// Deletes a node; whether it was there.
    fn delete(&self, path: &str) -> Answer<'static, bool>;
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) fate: Fate,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// What became of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Refused: the node, or its parent, is not there.
    Missing,
    /// Refused: the node is there already.
    Exists,
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

/// A directory and every one above it, the highest first.
fn directories(path: &str) -> impl Iterator<Item = &str> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    ends.map(|end| &path[..end])
}

/// Whether a directory is there, by the answers to the makings of it and of every one above it. One that is there answers so, or
/// that it may not be made.
fn made(outcomes: impl IntoIterator<Item = Result<(), Fault>>) -> Result<(), Fault> {
    let mut refusal = None;
    for outcome in outcomes {
        match outcome {
            Ok(()) | Err(Fault { fate: Fate::Exists, .. }) => refusal = None,
            // What is missing here has been refused above.
            Err(fault) if fault.fate != Fate::Missing || refusal.is_none() => refusal = Some(fault),
            Err(_) => {}
        }
    }
    refusal.map_or(Ok(()), Err)
}
