//! One ZooKeeper server: on a free loopback port, gone when the suite is gone.

pub(super) mod status;

use std::io;

use lock_testkit::ms;
use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::ports::free_port;

use crate::own::{Own, not_started, with_own_process};
use crate::ports::on_free_ports;
use crate::process::Process;
use crate::url::ServerUrl;
use crate::zookeeper::client::{DEFAULT_PORT, ZooKeeperClient};
use crate::zookeeper::options::{EnsembleMember, Ports, ZooKeeperOptions};
use crate::zookeeper::program::Program;
use crate::zookeeper::session::Session;

/// The variable that points the suite at an existing server (`zk://host:port/chroot`) instead.
pub const URL_VARIABLE: &str = "LOCK_TESTKIT_ZOOKEEPER_URL";

/// The time by which a server answers: usually within a second, in milliseconds.
pub(in crate::zookeeper) const PATIENCE: u64 = 60_000;

/// A running server, which keeps what it has answered over a restart. Stopped, with its directory removed, when this is
/// dropped, and also if the process is killed.
#[derive(Debug)]
pub struct ZooKeeperServer {
    url: String,
    /// The way in for the suite's own client, which does not speak TLS.
    plain_url: String,
    address: String,
    /// Whether it is one of several of our own.
    member: bool,
    own: Own,
}

with_own_process!(ZooKeeperServer);

impl ZooKeeperServer {
    /// The server that [`URL_VARIABLE`] names, or else one of our own, which is alone.
    ///
    /// # Errors
    /// [`Missing`], naming the package to install, if there is no ZooKeeper, or what went wrong with it.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(URL_VARIABLE) {
            Ok(url) => {
                let server = Self::existing(url);
                server.until_ready().await?;
                Ok(server)
            }
            Err(_) => Self::start_own().await,
        }
    }

    /// A server of our own even where [`URL_VARIABLE`] names one: for tests that freeze or kill it.
    ///
    /// # Errors
    /// As [`start`](ZooKeeperServer::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&ZooKeeperOptions::new()).await
    }

    /// A server of our own that runs like this.
    ///
    /// # Errors
    /// As [`start`](ZooKeeperServer::start), and if the server does not understand an option.
    pub async fn start_with(options: &ZooKeeperOptions) -> Result<Self, Missing> {
        let program = Program::find()?;
        on_free_ports(|| async {
            let server = Self::prepare(options, &program, None).map_err(|error| not_started(&error))?;
            server.launch().await?;
            server.until_ready().await?;
            Ok(server)
        })
        .await
    }

    /// The server that runs at this URL, which is not ours to stop. No traffic yet.
    #[must_use]
    pub fn existing(url: impl Into<String>) -> Self {
        let url = url.into();
        Self { plain_url: url.clone(), address: address_in(&url), url, member: false, own: Own::not() }
    }

    /// A server that does not run yet, alone or as a member of an ensemble.
    pub(in crate::zookeeper) fn prepare(
        options: &ZooKeeperOptions,
        program: &Program,
        member: Option<&EnsembleMember>,
    ) -> io::Result<Self> {
        let ports = Ports { plain: free_port()?, tls: free_port()? };
        let process = Process::new("zookeeper", |directory| options.write(program, ports, member, directory))?;
        let (url, member, own) = (options.url(ports), member.is_some(), Own::new(process));
        Ok(Self { url, member, own, ..Self::existing(options.plain_url(ports)) })
    }

    /// The URL that clients connect to: `zk://host:port`, or `zks://host:port` for TLS, to which a chroot may be added.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    pub(in crate::zookeeper) fn plain_url(&self) -> &str {
        &self.plain_url
    }

    /// `host:port`, where the suite's own client connects to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// A client for ground truth, with a session of its own.
    ///
    /// # Errors
    /// If the server does not open a session.
    pub async fn client(&self) -> Result<ZooKeeperClient, HarnessError> {
        ZooKeeperClient::connect(&self.plain_url).await
    }

    /// Ends somebody's session, whose id its ephemeral nodes tell, as if it had expired.
    ///
    /// # Errors
    /// If there is no such session, or the server does not answer.
    pub async fn expire(&self, session: i64) -> Result<(), HarnessError> {
        ZooKeeperClient::take_over(&self.plain_url, &Session::of(session)).await?.close().await
    }

    /// Kills the server if it runs, and starts it again on the same port, with what it has kept: nodes, and sessions,
    /// whose timeouts begin anew. A server that is alone serves then; one of an ensemble does so once there is a quorum
    /// ([`until_ready`](ZooKeeperServer::until_ready)).
    ///
    /// # Errors
    /// If it is not ours, or does not start.
    pub async fn restart(&self) -> Result<(), HarnessError> {
        self.launch().await?;
        if self.member { Ok(()) } else { self.until_ready().await }
    }

    /// Starts the process, and waits until it answers.
    pub(in crate::zookeeper) async fn launch(&self) -> Result<(), HarnessError> {
        self.own.process()?.start()?;
        let silent = format!("{} does not answer", self.url);
        self.own.until(&silent, ms(PATIENCE), || self.answers()).await.map(drop)
    }

    /// Waits until the server serves.
    ///
    /// # Errors
    /// If it ends, or takes too long, with what it said last.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        let useless = format!("{} does not serve", self.url);
        self.own.until(&useless, ms(PATIENCE), || self.serves()).await.map(drop)
    }
}

/// `host:port`, or nothing for a URL of another form, with which no client is made either.
pub(in crate::zookeeper) fn address_in(url: &str) -> String {
    ServerUrl::parse(url, DEFAULT_PORT).ok().and_then(|url| url.addresses.into_iter().next()).unwrap_or_default()
}
