//! Directories that the servers remove when they have become empty. The crate asks for them by a request that makes persistent
//! nodes of them, and that the servers' digests of their tree trip over: so they are made by a session of our own, which lives
//! as long as that takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{fmt, io};

use tokio::sync::Semaphore;
use tokio::time::Instant;
use zookeeper_async::ZkError;

use super::handshake::PATIENCE;
use super::raw_session::RawSession;
use super::{Failure, Fate, Response};
use crate::access::{Access, Credentials};
use crate::client::{directories, made};

/// The number of such sessions that a client has at once. Servers allow 60 connections from one address by default.
const AT_ONCE: usize = 2;

/// The time after which a server that has not answered counts as silent, although whoever asked has given up.
const SILENT: Duration = Duration::from_millis(50);

/// The making of directories.
#[derive(Clone)]
pub(super) struct Directories {
    options: Arc<Destination>,
    turns: Arc<Semaphore>,
    /// The index of the server that is asked first: the one that has answered last, or that comes behind a silent one.
    first: Arc<AtomicUsize>,
}

struct Destination {
    /// Each is asked until one answers, beginning with that.
    servers: Vec<SocketAddr>,
    chroot: String,
    timeout: Duration,
    credentials: Option<Credentials>,
    access: Access,
}

impl Directories {
    pub(super) fn new(servers: Vec<SocketAddr>, timeout: Duration, options: &crate::client::ConnectOptions) -> Self {
        let (chroot, credentials, access) =
            (options.chroot.clone(), options.credentials.clone(), options.access.clone());
        let options = Arc::new(Destination { servers, chroot, timeout, credentials, access });
        Self { options, turns: Arc::new(Semaphore::new(AT_ONCE)), first: Arc::default() }
    }

    /// Makes a directory, and every one above it. Dropped before it has its answer, it may be made or not.
    pub(super) fn make(&self, path: &str) -> Response<'static, ()> {
        let (directories, path) = (self.clone(), path.to_owned());
        Box::pin(async move {
            let turn = directories.turns.acquire().await;
            let mut failure = io::Error::from(io::ErrorKind::NotFound);
            let servers = &directories.options.servers;
            let first = directories.first.load(Ordering::Acquire);
            let in_turn = servers.iter().enumerate().cycle().skip(first).take(servers.len());
            for (index, server) in in_turn {
                let limit = PATIENCE.min(directories.options.timeout / 2);
                let asked = AskedServer {
                    first: &directories.first,
                    index,
                    servers: servers.len(),
                    since: Instant::now(),
                    is_unanswered: true,
                };
                match tokio::time::timeout(limit, directories.options.make_at(*server, &path)).await {
                    Ok(Ok(outcomes)) => {
                        asked.answered();
                        return made(outcomes);
                    }
                    Ok(Err(error)) => failure = error,
                    Err(late) => failure = late.into(),
                }
            }
            drop(turn);
            Err(Failure { fate: Fate::Unknown, source: Box::new(failure) })
        })
    }
}

/// A server that is asked. If it is silent at the end of this, the next one is asked first from then on: also after a call that was
/// given up, which would otherwise begin with the silent one each time.
struct AskedServer<'a> {
    first: &'a AtomicUsize,
    index: usize,
    /// The number of servers that there are.
    servers: usize,
    since: Instant,
    is_unanswered: bool,
}

impl AskedServer<'_> {
    /// It is asked first from now on.
    fn answered(mut self) {
        self.first.store(self.index, Ordering::Release);
        self.is_unanswered = false;
    }
}

impl Drop for AskedServer<'_> {
    fn drop(&mut self) {
        if self.is_unanswered && self.since.elapsed() >= SILENT {
            let next = (self.index + 1) % self.servers;
            // Unless another call has moved on, or had an answer.
            let _ = self.first.compare_exchange(self.index, next, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

impl Destination {
    /// The server's verdict on each directory.
    async fn make_at(&self, server: SocketAddr, path: &str) -> io::Result<Vec<Result<(), Failure>>> {
        let (mut raw_session, _) = RawSession::open(server, self.timeout).await?;
        if let Some(Credentials::Digest { user, password }) = &self.credentials
            && let verdict @ 1.. | verdict @ ..=-1 = raw_session.introduce(&format!("{user}:{password}")).await?
        {
            return Ok(vec![outcome(verdict)]);
        }
        let access = match &self.access {
            Access::Everybody => vec![("world", "anyone")],
            Access::Creator => vec![("auth", "")],
            Access::Only(identities) => identities.iter().map(|(scheme, id)| (&**scheme, &**id)).collect(),
        };
        let mut outcomes = Vec::new();
        for directory in directories(path) {
            outcomes.push(outcome(raw_session.make(&format!("{}{directory}", self.chroot), &access).await?));
        }
        // What was made stays, whether the session is closed now or ends by itself.
        let _ = raw_session.close().await;
        Ok(outcomes)
    }
}

fn outcome(verdict: i32) -> Result<(), Failure> {
    if verdict == 0 { Ok(()) } else { Err(ZkError::from(verdict).into()) }
}

impl fmt::Debug for Directories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directories").field("servers", &self.options.servers).finish_non_exhaustive()
    }
}
