//! Three servers, of which any two are a quorum.

use std::io;

use futures_util::future::try_join_all;
use lock_testkit::ms;
use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::Injected;
use lock_testkit_proxy::ports::free_port;

use super::client::{DEFAULT_PORT, ZooKeeperClient};
use super::links::LeaderLinks;
use super::options::{EnsembleMember, ZooKeeperOptions};
use super::program::Program;
use super::server::status::Mode;
use super::server::{PATIENCE, ZooKeeperServer};
use super::session::Session;
use crate::own::not_started;
use crate::ports::on_free_ports;
use crate::until::until;
use crate::url::{ServerUrl, authority};

/// The variable that points the suite at an existing ensemble (`zk://host:port,host:port,host:port/chroot`) instead.
pub const ENSEMBLE_URL_VARIABLE: &str = "LOCK_TESTKIT_ZOOKEEPER_ENSEMBLE_URL";

const SERVERS: usize = 3;

/// Three servers, of which any two are a quorum. Gone when this is dropped, and when the suite is killed.
///
/// Each is a [`ZooKeeperServer`], which can be frozen, killed and restarted by itself. A follower can also be
/// [cut off](ZooKeeperEnsemble::cut_off) from the others while its clients stay connected.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    url: String,
    /// The way in for the suite's own client, which does not speak TLS.
    plain_url: String,
    servers: Vec<ZooKeeperServer>,
    /// `None` if servers reach each other directly.
    links: Option<LeaderLinks>,
}

impl ZooKeeperEnsemble {
    /// The ensemble that [`ENSEMBLE_URL_VARIABLE`] names, or else one of our own.
    ///
    /// # Errors
    /// [`Missing`], naming the package to install, if there is no ZooKeeper, or what went wrong with it.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(ENSEMBLE_URL_VARIABLE) {
            Ok(url) => {
                let ensemble = Self::existing(url)?;
                ensemble.until_ready().await?;
                Ok(ensemble)
            }
            Err(_) => Self::start_own().await,
        }
    }

    /// An ensemble of our own even where [`ENSEMBLE_URL_VARIABLE`] names one.
    ///
    /// # Errors
    /// As [`start`](ZooKeeperEnsemble::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&ZooKeeperOptions::new()).await
    }

    /// An ensemble of our own whose servers run like this.
    ///
    /// # Errors
    /// As [`start`](ZooKeeperEnsemble::start), and if the servers do not understand an option.
    pub async fn start_with(options: &ZooKeeperOptions) -> Result<Self, Missing> {
        let program = Program::find()?;
        on_free_ports(|| async {
            let ensemble = Self::prepare(options, &program).map_err(|error| not_started(&error))?;
            try_join_all(ensemble.servers.iter().map(ZooKeeperServer::launch)).await?;
            ensemble.until_ready().await?;
            Ok(ensemble)
        })
        .await
    }

    fn prepare(options: &ZooKeeperOptions, program: &Program) -> io::Result<Self> {
        let ports = || (0..SERVERS).map(|_| free_port()).collect::<io::Result<Vec<_>>>();
        let (followers, elections) = (ports()?, ports()?);
        let links = options.severable().then(|| LeaderLinks::new(&followers)).transpose()?;
        let line = |this: usize, other: usize| {
            let follower = links.as_ref().and_then(|links| links.port(this, other)).unwrap_or(followers[other]);
            format!("server.{}=127.0.0.1:{follower}:{}", other + 1, elections[other])
        };
        let member =
            |this| EnsembleMember { id: this + 1, servers: (0..SERVERS).map(|other| line(this, other)).collect() };
        let servers = (0..SERVERS).map(|this| ZooKeeperServer::prepare(options, program, Some(&member(this))));
        let servers = servers.collect::<io::Result<Vec<_>>>()?;
        let (url, plain_url) = (joined(&servers, ZooKeeperServer::url), joined(&servers, ZooKeeperServer::plain_url));
        Ok(Self { url, plain_url, servers, links })
    }

    /// The ensemble that runs at this URL, which is not ours to stop. No traffic yet.
    ///
    /// # Errors
    /// If the URL has another form than `zk://[user:password@]host:port[,host:port...][/chroot]`.
    pub fn existing(url: impl Into<String>) -> Result<Self, HarnessError> {
        let url = url.into();
        let ServerUrl { scheme, credentials, addresses, path } = ServerUrl::parse(&url, DEFAULT_PORT)?;
        if scheme != "zk" {
            return Err(HarnessError::new(
                "the URL of an ensemble should read zk://host:port,host:port,host:port/chroot",
            ));
        }
        let authority = authority(credentials.as_ref());
        let servers =
            addresses.iter().map(|address| ZooKeeperServer::existing(format!("zk://{authority}{address}/{path}")));
        Ok(Self { servers: servers.collect(), plain_url: url.clone(), url, links: None })
    }

    /// The URL that clients connect to: `zk://host:port,host:port,host:port`, or `zks://` for TLS, to which a chroot may
    /// be added.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> &[ZooKeeperServer] {
        &self.servers
    }

    /// A client for ground truth, with a session of its own, at the first server that opens one.
    ///
    /// # Errors
    /// If no server does.
    pub async fn client(&self) -> Result<ZooKeeperClient, HarnessError> {
        ZooKeeperClient::connect(&self.plain_url).await
    }

    /// Ends somebody's session, whose id its ephemeral nodes tell, as if it had expired.
    ///
    /// # Errors
    /// If there is no such session, or no server answers.
    pub async fn expire(&self, session: i64) -> Result<(), HarnessError> {
        ZooKeeperClient::take_over(&self.plain_url, &Session::of(session)).await?.close().await
    }

    /// The present leader.
    ///
    /// # Errors
    /// If there is none.
    pub async fn leader(&self) -> Result<&ZooKeeperServer, HarnessError> {
        let leaders = self.all(Mode::Leader).await;
        leaders.first().copied().ok_or_else(|| HarnessError::new("no server leads"))
    }

    /// The servers that follow a leader at present.
    pub async fn followers(&self) -> Vec<&ZooKeeperServer> {
        self.all(Mode::Follower).await
    }

    /// Waits until every server has its part, so that one of them may fail.
    ///
    /// # Errors
    /// If it takes too long, with what was missing in the end.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        until("a complete ensemble", ms(PATIENCE), || self.complete()).await
    }

    /// Waits until another server than this one leads.
    ///
    /// # Errors
    /// If it takes too long.
    pub async fn until_another_leader(&self, old: &ZooKeeperServer) -> Result<&ZooKeeperServer, HarnessError> {
        until("another leader", ms(PATIENCE), || async {
            let leaders = self.all(Mode::Leader).await;
            let other = leaders.into_iter().find(|leader| leader.address() != old.address());
            other.ok_or_else(|| HarnessError::new("no other server leads"))
        })
        .await
    }

    /// Cuts a server off from those that it follows and those that follow it, as when a cable is pulled: connections stay
    /// open, and nothing gets through. Its clients stay connected. The ensemble has to be started
    /// [severable](ZooKeeperOptions::with_severable_links).
    ///
    /// A follower notices after `syncLimit` ticks (2 s), and until then answers pings and reads from a state that may be
    /// over; writes, `sync` and new sessions wait. Its leader ends the sessions of its clients meanwhile, after their
    /// timeouts. Once it has noticed, it closes their connections and serves nobody.
    ///
    /// The elections among the servers are not cut. So a leader that is cut off may be elected again, by
    /// servers that cannot follow it: freeze it instead ([`ZooKeeperServer::stop`]).
    ///
    /// # Errors
    /// If the ensemble is not severable, or the server is none of it.
    pub fn cut_off(&self, server: &ZooKeeperServer) -> Result<(), HarnessError> {
        self.links()?.cut(self.number(server)?);
        Ok(())
    }

    /// Holds what one server says to another, in this direction only, until all that is given here is dropped: then it
    /// arrives. The ensemble has to be started [severable](ZooKeeperOptions::with_severable_links). As with
    /// [`cut_off`](ZooKeeperEnsemble::cut_off), servers notice after `syncLimit` ticks.
    ///
    /// # Errors
    /// If the ensemble is not severable, or one of the servers is none of it.
    pub fn hold(&self, from: &ZooKeeperServer, to: &ZooKeeperServer) -> Result<Vec<Injected<'static>>, HarnessError> {
        Ok(self.links()?.hold(self.number(from)?, self.number(to)?))
    }

    /// Connects everybody again. What was sent meanwhile arrives.
    ///
    /// # Errors
    /// If the ensemble is not severable.
    pub fn heal(&self) -> Result<(), HarnessError> {
        self.links()?.heal();
        Ok(())
    }

    fn number(&self, server: &ZooKeeperServer) -> Result<usize, HarnessError> {
        let number = self.servers.iter().position(|other| other.address() == server.address());
        number.ok_or_else(|| HarnessError::new(format!("{} is no server of this ensemble", server.address())))
    }

    fn links(&self) -> Result<&LeaderLinks, HarnessError> {
        self.links.as_ref().ok_or_else(|| HarnessError::new("the ensemble was not started with severable links"))
    }

    async fn complete(&self) -> Result<(), HarnessError> {
        for server in &self.servers {
            server.serves().await?;
        }
        self.leader().await.map(drop)
    }

    /// The servers that have this part. Who does not answer soon has none.
    async fn all(&self, mode: Mode) -> Vec<&ZooKeeperServer> {
        let mut found = Vec::new();
        for server in self.servers.iter().filter(|server| server.is_running()) {
            if server.serves().await.is_ok_and(|part| part == mode) {
                found.push(server);
            }
        }
        found
    }
}

/// Makes one URL of those of several servers.
fn joined(servers: &[ZooKeeperServer], url: impl Fn(&ZooKeeperServer) -> &str) -> String {
    let parts = servers.iter().filter_map(|server| url(server).split_once("://"));
    let (schemes, addresses): (Vec<_>, Vec<_>) = parts.unzip();
    format!("{}://{}", schemes.first().unwrap_or(&"zk"), addresses.join(","))
}
