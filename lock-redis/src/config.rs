//! The configuration of a client: its servers, and what all its locks have in common.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ClientOptions, Error, Guarantees, Phase};

use crate::network::Network;
use crate::store::dialect::{Dialect, Dialects};
use crate::tls::Tls;
use crate::url::{Login, Servers, Target};

/// Configuration of a [`RedisLocks`](crate::RedisLocks) client.
///
/// ```
/// use lock_redis::RedisConfig;
///
/// let config = RedisConfig::new("redis://worker:secret@127.0.0.1:6379/2").with_prefix("billing");
/// assert!(!format!("{config:?}").contains("secret"));
///
/// let watched = RedisConfig::sentinel(["10.0.0.1:26379", "10.0.0.2:26379"], "mymaster")
///     .with_credentials("worker", "secret")
///     .with_sentinel_credentials("observer", "another secret");
/// let cluster = RedisConfig::cluster(["10.0.0.1:6379", "10.0.0.2:6379"]);
/// # let _ = (watched, cluster);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisConfig {
    /// The servers.
    ///
    /// | URL | servers |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:port][/database]` | one server |
    /// | `unix:///path[?db=…&user=…&pass=…]` | one server behind a Unix socket |
    /// | `redis-sentinel://[user[:password]@]host[:port][,host[:port]…]/master-name[/database]` | the master that these sentinels name |
    /// | `redis-cluster://[user[:password]@]host[:port][,host[:port]…]` | the cluster to which these nodes belong |
    ///
    /// With `rediss` for `redis` the connections use TLS; `valkey` and `valkeys` mean the same as `redis` and `rediss`. The port is 6379
    /// if none is given, that of a sentinel 26379; the database is 0. User and password are for the servers, not for sentinels. Special
    /// characters in a user, a password, a path or a name are percent-encoded. A user without a password logs in as one who needs none (`nopass`).
    ///
    /// ```no_run
    /// # async fn doc() -> Result<(), lock_redis::Error> {
    /// use lock_redis::RedisLocks;
    ///
    /// let one = RedisLocks::connect("rediss://worker:p%40ssword@redis.example:6380/2").await?;
    /// let behind_a_socket = RedisLocks::connect("unix:///run/redis.sock?db=2").await?;
    /// let watched = RedisLocks::connect("redis-sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster").await?;
    /// let cluster = RedisLocks::connect("redis-cluster://10.0.0.1,10.0.0.2:7000").await?;
    /// # Ok(()) }
    /// ```
    pub url: String,
    /// The prefix of every key and channel, except keys given by [`LockName::from_key`](lock_core::LockName::from_key).
    /// Clients with different prefixes do not see each other's locks. `"lock"` by default.
    pub prefix: String,
    /// Lease, time limits and label.
    pub client: ClientOptions,
    /// The number of replicas that must have acknowledged a grant, and the time for that; none by default.
    pub replicas: Option<Replicas>,
    pub(crate) dialects: Dialects,
    credentials: Option<Login>,
    sentinel_credentials: Option<Login>,
    tls: Option<Tls>,
    network: Option<Arc<dyn Network>>,
}

/// The replicas that [`RedisConfig::with_replicas`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replicas {
    /// The least number of replicas that must have a grant.
    pub count: u32,
    /// The time that they may take.
    pub timeout: Duration,
}

impl RedisConfig {
    /// The defaults for the servers that this URL names.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "lock".to_owned(),
            client: ClientOptions::default(),
            replicas: None,
            dialects: Dialects::default(),
            credentials: None,
            sentinel_credentials: None,
            tls: None,
            network: None,
        }
    }

    /// The master of this name, wherever these sentinels (`host:port`) say that it is. Name all of them: each is watched.
    #[must_use]
    pub fn sentinel<S: AsRef<str>>(sentinels: impl IntoIterator<Item = S>, master: &str) -> Self {
        Self::new(format!("redis-sentinel://{}/{}", listed(sentinels), encoded(master)))
    }

    /// The cluster to which these nodes (`host:port`) belong; the others are found through them.
    #[must_use]
    pub fn cluster<S: AsRef<str>>(nodes: impl IntoIterator<Item = S>) -> Self {
        Self::new(format!("redis-cluster://{}", listed(nodes)))
    }

    /// Logs in as this user, whatever the URL says. An empty user is the default one; a password may be empty
    /// for a user who needs none.
    #[must_use]
    pub fn with_credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(login(user, password));
        self
    }

    /// Logs in as this user at the sentinels, which have users of their own. Without this they are asked without
    /// credentials.
    #[must_use]
    pub fn with_sentinel_credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sentinel_credentials = Some(login(user, password));
        self
    }

    /// Uses TLS to every server and sentinel, with these certificates. Needs the feature `tls`. A Unix socket is without TLS, whatever is set here.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Counts an acquisition only when so many replicas have acknowledged it (`WAIT`) within `timeout`; otherwise it is
    /// undone, and the error is [`ErrorKind::Unavailable`](lock_core::ErrorKind::Unavailable). Costs a round trip more,
    /// and the replication's own delay.
    ///
    /// This narrows the window in which a failover forgets a lock; it does not close it: the replica that is promoted
    /// need not be one of those that acknowledged, and renewals are not waited for.
    #[must_use]
    pub fn with_replicas(mut self, count: u32, timeout: Duration) -> Self {
        self.replicas = Some(Replicas { count, timeout });
        self
    }

    /// Speaks this dialect at this key, which other libraries' clients share
    /// ([`LockName::from_key`](lock_core::LockName::from_key)).
    #[must_use]
    pub fn with_dialect_at(mut self, key: impl Into<String>, dialect: Dialect) -> Self {
        self.dialects.insert(key.into(), dialect);
        self
    }

    /// Connects over a network that is not the system's. For the simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        self.network = Some(network);
        self
    }

    /// Sets another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets other options for its locks.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Returns the promises of a client with this configuration. No server is asked.
    ///
    /// # Errors
    /// `InvalidArgument` if the configuration makes no sense; [`RedisLocks::connect_with`](crate::RedisLocks::connect_with) would refuse
    /// it, too.
    ///
    /// # Examples
    /// ```
    /// use lock_redis::{RedisConfig, Support};
    ///
    /// # fn main() -> Result<(), lock_redis::Error> {
    /// let cluster = RedisConfig::cluster(["10.0.0.1:6379", "10.0.0.2:6379"]);
    /// // Exclusion holds unless a failover loses the lock.
    /// assert!(matches!(cluster.guarantees()?.exclusion_across_failover, Support::Unless(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn guarantees(&self) -> Result<Guarantees, Error> {
        Ok(self.check()?.servers.topology().guarantees())
    }

    /// Everything that can be checked without a server.
    pub(crate) fn check(&self) -> Result<Target, Error> {
        self.client.check()?;
        let prefix = &self.prefix;
        if prefix.is_empty() || prefix.len() > 256 || prefix.contains(['{', '}']) {
            return Err(invalid(format!("the prefix {prefix:?} must have 1 to 256 bytes and no braces")));
        }
        if let Some(Replicas { count, timeout }) = self.replicas
            && (count == 0 || timeout < Duration::from_millis(1) || timeout > self.client.op_timeout)
        {
            let what = format!(
                "{count} replicas within {timeout:?}: ask for at least 1, within 1 ms to one operation timeout ({:?})",
                self.client.op_timeout
            );
            return Err(invalid(what));
        }
        let mut target = Target::parse(&self.url)?;
        if let Some(credentials) = &self.credentials {
            target.login = credentials.clone();
        }
        let is_sentinel = matches!(target.servers, Servers::Sentinel { .. });
        if self.sentinel_credentials.is_some() && !is_sentinel {
            return Err(invalid("there are credentials for sentinels, but no sentinels".to_owned()));
        }
        let with_redisson = self.dialects.values().any(|dialect| *dialect == Dialect::Redisson);
        if with_redisson && matches!(target.servers, Servers::Cluster(_)) {
            return Err(invalid("a key in a cluster cannot be shared with Redisson".to_owned()));
        }
        target.tls |= self.tls.is_some();
        Ok(target)
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone().unwrap_or_default()
    }

    pub(crate) fn network(&self) -> Option<Arc<dyn Network>> {
        self.network.clone()
    }

    pub(crate) fn sentinel_login(&self) -> Login {
        self.sentinel_credentials.clone().unwrap_or_default()
    }
}

impl std::fmt::Debug for RedisConfig {
    /// Without the URL, which may carry a password, and without credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedisConfig")
            .field("prefix", &self.prefix)
            .field("client", &self.client)
            .field("replicas", &self.replicas)
            .field("dialects", &self.dialects)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

fn login(user: impl Into<String>, password: impl Into<String>) -> Login {
    let given = |text: String| (!text.is_empty()).then_some(text);
    Login { user: given(user.into()), password: given(password.into()) }
}

fn listed<S: AsRef<str>>(hosts: impl IntoIterator<Item = S>) -> String {
    hosts.into_iter().map(|host| host.as_ref().to_owned()).collect::<Vec<_>>().join(",")
}

fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn invalid(what: String) -> Error {
    Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarantees::Topology;

    #[test]
    fn values_say_the_same_as_a_url() {
        let of_url = RedisConfig::new("redis-sentinel://u:p@a:1,b:2/my%2Fmaster").check().unwrap();
        let of_values = RedisConfig::sentinel(["a:1", "b:2"], "my/master").with_credentials("u", "p");
        assert_eq!(of_values.check().unwrap(), of_url);
        let cluster = RedisConfig::cluster(["a:1", "b:2"]).with_tls(Tls::new()).check().unwrap();
        assert_eq!(cluster, RedisConfig::new("rediss-cluster://a:1,b:2").check().unwrap());
    }

    #[test]
    fn promises_are_those_of_the_servers_that_the_url_names() {
        for (url, topology) in [
            ("redis://a", Topology::Single),
            ("redis-sentinel://a:1/my", Topology::Sentinel),
            ("redis-cluster://a:1", Topology::Cluster),
        ] {
            assert_eq!(RedisConfig::new(url).guarantees().unwrap(), topology.guarantees(), "{url}");
        }
        assert!(RedisConfig::new("http://a").guarantees().is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_secrets_are_not_shown() {
        let config = RedisConfig::new("redis://:hunter2@a").with_credentials("hunter2", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(config.clone().with_sentinel_credentials("a", "b").check().is_err());
        let shared = |config: RedisConfig| config.with_dialect_at("jobs", Dialect::Redisson).check();
        assert!(shared(RedisConfig::cluster(["a:1"])).is_err() && shared(config.clone()).is_ok());
        assert!(config.clone().with_replicas(0, Duration::from_millis(10)).check().is_err());
        assert!(config.clone().with_replicas(1, Duration::ZERO).check().is_err());
        assert!(config.clone().with_replicas(1, Duration::from_secs(60)).check().is_err());
        assert!(config.with_replicas(1, Duration::from_millis(50)).check().is_ok());
    }
}
