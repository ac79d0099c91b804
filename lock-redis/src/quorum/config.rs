//! The configuration of a client: its servers, and what all its locks have in common.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{ClientOptions, Error, Guarantees, LeaseOptions, Phase};

use super::NAME;
use crate::address::Address;
use crate::client::dial::{Dial, Opener};
use crate::config::RedisConfig;
use crate::network::Network;
use crate::tls::Tls;
use crate::url::{Servers, Target};

/// With two servers a majority is both of them: that survives nothing.
const FEWEST: usize = 3;

/// Configuration of a [`QuorumLocks`](crate::QuorumLocks) client. All clients of a lock need the same servers, prefix and
/// longest TTL.
///
/// ```
/// use std::time::Duration;
/// use lock_redis::QuorumConfig;
///
/// let servers = (1..=5).map(|i| format!("redis://worker:secret@redis-{i}.example/"));
/// let config = QuorumConfig::new(servers).with_longest_ttl(Duration::from_secs(30));
/// assert!(!format!("{config:?}").contains("secret"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct QuorumConfig {
    /// The servers, each as `redis://[user[:password]@]host[:port][/database]`, `rediss://…` with TLS, or
    /// `unix:///path[?db=…&user=…&pass=…]`: at least three that fail independently of each other. No replicas of each other,
    /// and no two names of one server. An odd number: a fourth one survives no more failures than three.
    pub urls: Vec<String>,
    /// The prefix of every key, except keys given by [`LockName::from_key`](lock_core::LockName::from_key). `"lock"` by
    /// default.
    pub prefix: String,
    /// Lease, time limits and label.
    pub client: ClientOptions,
    /// The longest TTL that any client of these servers uses, up to [`LeaseOptions::MAX_TTL`]; the TTL in
    /// [`client`](QuorumConfig::client) if not given.
    ///
    /// A server that started less than this ago may have forgotten a lock that is still held elsewhere, and is not asked
    /// until it is older. So a longer TTL, or an extension by more, is refused as
    /// [`InvalidArgument`](lock_core::ErrorKind::InvalidArgument). When servers are new, locks are unavailable until a
    /// majority is old enough.
    pub longest_ttl: Option<Duration>,
    /// Whether servers are asked that started only lately. Off by default: two holders are possible when servers forget
    /// locks in a crash. For tests, and for servers that never forget (`appendfsync always`).
    pub young_servers: bool,
    tls: Option<Tls>,
    network: Option<Arc<dyn Network>>,
}

impl QuorumConfig {
    /// The defaults for these servers.
    #[must_use]
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            prefix: "lock".to_owned(),
            client: ClientOptions::default(),
            longest_ttl: None,
            young_servers: false,
            tls: None,
            network: None,
        }
    }

    /// Sets another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Uses TLS to every server that is not behind a Unix socket, with these certificates. Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Connects over a network that is not the system's. For the simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        self.network = Some(network);
        self
    }

    /// Sets other options for its locks.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Sets another [`longest_ttl`](QuorumConfig::longest_ttl).
    #[must_use]
    pub fn with_longest_ttl(mut self, ttl: Duration) -> Self {
        self.longest_ttl = Some(ttl);
        self
    }

    /// Sets whether servers are asked that [started only lately](QuorumConfig::young_servers).
    #[must_use]
    pub fn with_young_servers(mut self, young: bool) -> Self {
        self.young_servers = young;
        self
    }

    /// Returns the promises of a client with this configuration.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        super::guarantees(self.limit().is_some())
    }

    /// The longest TTL that is let through, if there is one; a server counts when it has been up for that long.
    pub(super) fn limit(&self) -> Option<Duration> {
        (!self.young_servers).then(|| self.longest_ttl.unwrap_or(self.client.lease.ttl))
    }

    /// The way to each server.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) for whatever can be found wrong without one.
    pub(super) fn dials(&self) -> Result<Vec<Dial>, Error> {
        self.client.check()?;
        let servers = self.urls.len();
        if servers < FEWEST {
            return Err(wrong(format!("a quorum needs at least {FEWEST} independent servers, {servers} are given")));
        }
        if let Some(limit) = self.limit() {
            let (ttl, most) = (self.client.lease.ttl, LeaseOptions::MAX_TTL);
            if limit < ttl {
                return Err(wrong(format!("longest_ttl is {limit:?}, below the TTL {ttl:?} of this client")));
            }
            if limit > most {
                return Err(wrong(format!("longest_ttl is {limit:?}, and no TTL is above {most:?}")));
            }
        }
        let targets = self.urls.iter().map(|url| self.target(url)).collect::<Result<Vec<_>, _>>()?;
        are_distinct(&targets)?;
        targets.into_iter().map(|(address, target)| self.dial(address, &target)).collect()
    }

    fn target(&self, url: &str) -> Result<(Address, Target), Error> {
        let mut config = RedisConfig::new(url).with_prefix(&self.prefix);
        if let Some(tls) = &self.tls {
            config = config.with_tls(tls.clone());
        }
        let target = config.check()?;
        match &target.servers {
            Servers::One(address) => Ok((address.clone(), target)),
            _ => Err(wrong("a quorum is of single servers, neither behind sentinels nor of a cluster".to_owned())),
        }
    }

    fn dial(&self, address: Address, target: &Target) -> Result<Dial, Error> {
        let tls = target.tls.then(|| self.tls.clone().unwrap_or_default());
        let opener = Opener::new(&target.login, target.database, tls.as_ref(), self.client.op_timeout)?;
        let opener = opener.over(self.network.clone());
        Ok(Dial::to(Arc::new(opener), address).once_up_for(self.limit().unwrap_or_default()))
    }
}

/// Two databases of one server fail together.
fn are_distinct(targets: &[(Address, Target)]) -> Result<(), Error> {
    let mut addresses = HashSet::new();
    for (address, _) in targets {
        if !addresses.insert(address) {
            return Err(wrong(format!(
                "the server {address} is named twice: the servers of a quorum must be independent"
            )));
        }
    }
    Ok(())
}

fn wrong(what: String) -> Error {
    Error::invalid(Phase::Configure, what).with_backend(NAME)
}

impl std::fmt::Debug for QuorumConfig {
    /// Without the URLs, which may carry passwords.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QuorumConfig")
            .field("servers", &self.urls.len())
            .field("prefix", &self.prefix)
            .field("client", &self.client)
            .field("longest_ttl", &self.longest_ttl)
            .field("young_servers", &self.young_servers)
            .field("tls", &self.tls)
            .finish()
    }
}
