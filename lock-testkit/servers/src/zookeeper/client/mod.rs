//! A session of the suite's own.

mod nodes;

use std::io;
use std::time::Duration;

use lock_testkit::HarnessError;
use tokio::sync::Mutex;

use crate::url::{Credentials, ServerUrl};
use crate::zookeeper::connection::{Connection, Operation, Reply};
use crate::zookeeper::jute::Writer;
use crate::zookeeper::session::Session;
use crate::zookeeper::watch::{Change, Changes};

/// The time that one request may take, the opening of a connection included.
const PATIENCE: Duration = Duration::from_secs(5);
/// The session timeout that is asked for unless something else was said.
const TIMEOUT: Duration = Duration::from_secs(30);
pub(in crate::zookeeper) const DEFAULT_PORT: u16 = 2181;

/// A session at ZooKeeper for ground truth: what a suite has to know and do beside the backend under test.
///
/// It makes one request at a time. After one that went wrong, the next one opens another connection for the same
/// session, at the first server that takes it. It sends no pings: only requests keep its session alive.
/// Unless it is [closed](ZooKeeperClient::close), the session stays until its timeout has passed.
#[derive(Debug)]
pub struct ZooKeeperClient {
    deployment: Deployment,
    session: Session,
    timeout: Duration,
    connection: Mutex<Option<Connection>>,
}

/// The parts of a URL.
#[derive(Debug)]
struct Deployment {
    addresses: Vec<String>,
    /// Stands before every path: empty, or `/a/path`.
    chroot: String,
    credentials: Option<Credentials>,
}

impl ZooKeeperClient {
    /// A new session at `zk://[user:password@]host[:port][,host[:port]...][/chroot]`, with a timeout of 30 s.
    /// Credentials are shown by the scheme `digest`. Every path that is asked for is one below the chroot.
    ///
    /// # Errors
    /// If the URL has another form, or no server opens a session within five seconds.
    pub async fn connect(url: &str) -> Result<Self, HarnessError> {
        Self::connect_with(url, TIMEOUT).await
    }

    /// Connects with this timeout, which the server may change; see [`connect`](ZooKeeperClient::connect).
    ///
    /// # Errors
    /// As [`connect`](ZooKeeperClient::connect).
    pub async fn connect_with(url: &str, timeout: Duration) -> Result<Self, HarnessError> {
        Self::open(url, &Session::none(), timeout).await
    }

    /// Takes over somebody else's session: his connection is closed at once, or at his next write if he has it to another
    /// server. [`close`](ZooKeeperClient::close) then ends the session, which to him is as if it had expired; before that,
    /// he takes it back as soon as he connects again.
    ///
    /// # Errors
    /// As [`connect`](ZooKeeperClient::connect), and `SessionExpired` if there is no such session.
    pub async fn take_over(url: &str, session: &Session) -> Result<Self, HarnessError> {
        Self::open(url, session, TIMEOUT).await
    }

    async fn open(url: &str, session: &Session, timeout: Duration) -> Result<Self, HarnessError> {
        let deployment = Deployment::parse(url)?;
        let (connection, session, timeout) = patiently(deployment.connect(session, timeout)).await?;
        Ok(Self { deployment, session, timeout, connection: Mutex::new(Some(connection)) })
    }

    /// Returns the present session.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The silence after which the servers end this session.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Ends the session, and with it its ephemeral nodes.
    ///
    /// # Errors
    /// If no server confirms it; then the session ends after its timeout.
    pub async fn close(self) -> Result<(), HarnessError> {
        self.request(Operation::CloseSession, |nothing| nothing).await?.map(drop)?;
        Ok(())
    }

    /// Sends one request, on the connection that is open or else on another one.
    pub(in crate::zookeeper) async fn request(
        &self,
        operation: Operation,
        body: impl FnOnce(Writer) -> Writer,
    ) -> Result<Reply, HarnessError> {
        Ok(self.exchange(operation, body).await?.0)
    }

    /// Sends a request that sets a watch on the node at this full path; returns what tells when that has changed.
    pub(in crate::zookeeper) async fn watch(
        &self,
        operation: Operation,
        full: &str,
        body: impl FnOnce(Writer) -> Writer,
    ) -> Result<(Reply, Change), HarnessError> {
        let (answer, changes) = self.exchange(operation, body).await?;
        Ok((answer, Change::new(full, changes)))
    }

    /// Sends one request; returns what changes from then on.
    async fn exchange(
        &self,
        operation: Operation,
        body: impl FnOnce(Writer) -> Writer,
    ) -> Result<(Reply, Changes), HarnessError> {
        let mut slot = self.connection.lock().await;
        patiently(async {
            // Out of its slot while in use, so that a dropped future leaves no half-read stream behind.
            let mut connection = match slot.take() {
                Some(connection) => connection,
                None => self.deployment.connect(&self.session, self.timeout).await?.0,
            };
            // Before the request: what it lets the server tell may come right behind the answer.
            let changes = connection.changes();
            let answer = connection.request(operation, body).await?;
            *slot = Some(connection);
            Ok((answer, changes))
        })
        .await
    }

    /// The path that servers know.
    pub(in crate::zookeeper) fn full(&self, path: &str) -> String {
        let chroot = &self.deployment.chroot;
        if path == "/" && !chroot.is_empty() { chroot.clone() } else { format!("{chroot}{path}") }
    }

    /// The path that users of this client know.
    pub(in crate::zookeeper) fn below_chroot(&self, full: &str) -> String {
        full.strip_prefix(&self.deployment.chroot).unwrap_or(full).to_owned()
    }
}

impl Deployment {
    fn parse(url: &str) -> Result<Self, HarnessError> {
        let ServerUrl { scheme, credentials, addresses, path } = ServerUrl::parse(url, DEFAULT_PORT)?;
        if scheme != "zk" {
            return Err(HarnessError::new("the testkit's own client needs a URL like zk://host:port/chroot"));
        }
        let chroot = if path.is_empty() { path } else { format!("/{path}") };
        Ok(Self { addresses, chroot, credentials })
    }

    /// A connection to the first server that takes the session.
    async fn connect(
        &self,
        session: &Session,
        timeout: Duration,
    ) -> Result<(Connection, Session, Duration), HarnessError> {
        let mut outcome = Err(HarnessError::new("there is no server"));
        for address in &self.addresses {
            outcome = self.connect_to(address, session, timeout).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn connect_to(
        &self,
        address: &str,
        session: &Session,
        timeout: Duration,
    ) -> Result<(Connection, Session, Duration), HarnessError> {
        let opened = Connection::open(address, session, timeout).await;
        let (mut connection, session, timeout) =
            opened.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
        if let Some(Credentials { user, password }) = &self.credentials {
            connection.authenticate("digest", &format!("{user}:{password}")).await??;
        }
        Ok((connection, session, timeout))
    }
}

async fn patiently<T>(work: impl Future<Output = Result<T, HarnessError>>) -> Result<T, HarnessError> {
    let late = |_| Err(HarnessError::new(format!("no answer from ZooKeeper within {PATIENCE:?}")));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_below_what() {
        let deployment = Deployment::parse("zk://me:secret@a,b:2182/locks/of/mine/").unwrap();
        assert_eq!(deployment.addresses, ["a:2181", "b:2182"]);
        assert_eq!(deployment.chroot, "/locks/of/mine");
        assert_eq!(deployment.credentials.unwrap().user, "me");
        assert_eq!(Deployment::parse("zk://a/").unwrap().chroot, "");
        assert!(Deployment::parse("redis://a/").is_err());
    }
}
