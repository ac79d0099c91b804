//! The configuration of a client: its servers, and the options of all its locks.

use std::fmt;
use std::time::Duration;

#[cfg(feature = "zookeeper-async")]
use lock_core::ErrorKind;
use lock_core::{ClientOptions, Error, Guarantees, Phase};

use crate::access::{self, Access, Credentials};
#[cfg(feature = "zookeeper-async")]
use crate::client::SHORTEST_SESSION;
use crate::client::{ClientCrate, ConnectOptions};
use crate::session::SessionOptions;
use crate::session::lease::longest_tick;
use crate::store::layout::{Layout, is_within_another, without_root};
use crate::store::node::Dialect;
use crate::tls::Tls;
use crate::url::Target;

/// The prefix of whoever asks for no other one.
const EVERYBODYS: &str = "lock";

/// Configuration of a [`ZkLocks`](crate::ZkLocks) client.
///
/// ```
/// use std::time::Duration;
/// use lock_zk::ZkConfig;
///
/// let config = ZkConfig::new("zk://10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/apps/billing")
///     .with_session_timeout(Duration::from_secs(6))
///     .with_tick_time(Duration::from_secs(1));
/// ```
///
/// Debug output has neither users nor passwords.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ZkConfig {
    /// The URL of the servers: `zk://host[:port][,host[:port]…][/chroot]`, or `zks://…` for TLS.
    pub url: String,
    /// The directory under which every lock has its own, except paths given by
    /// [`LockName::from_key`](lock_core::LockName::from_key). Clients with different prefixes do not see each other's locks.
    /// `"lock"` by default; a `/` in it makes a directory of its own.
    pub prefix: String,
    /// The time for which the servers keep the session of a silent client, and with it every lock. The servers may grant less or more
    /// (`minSessionTimeout`, `maxSessionTimeout`). 10 s by default. The session may be trusted for as little as four fifths of this
    /// less one tick, and a guard for less, since it learns of the session by its renewals: with the defaults, 4.2 s at least remain on a
    /// healthy link. Choose three ticks or more; less than five quarters of a tick are refused.
    pub session_timeout: Duration,
    /// The `tickTime` of the servers: within a tick their leader learns which clients the others have heard. 2 s, as
    /// ZooKeeper's own default. With a longer value locks are trusted for less time; with a shorter one, for too long. Twice
    /// the servers' value for a client of observers that follow a follower (`observerMasterPort`).
    pub tick_time: Duration,
    /// The rights to the nodes that this client makes; everybody's by default, whatever its credentials. Anything else needs a
    /// [prefix](ZkConfig::prefix) of its own, not below `lock`: the first client there makes the directories, and nobody else
    /// could enter them.
    pub access: Access,
    /// Whether this client's mutexes go to the client that claims them first, without a queue: `false` by default.
    ///
    /// A claim and a release are one request each, and the lock need not wait for whoever is next in the queue. But a release
    /// wakes everybody who waits, no waiter is sure to have a turn, and waiters are not seen by `inspect`. Clients with this
    /// and clients in the queue exclude each other; as long as anybody waits in the queue, no claim succeeds. Mutexes at shared
    /// paths, and the other kinds, have their queue all the same. Not with `zookeeper-async`.
    pub unfair_mutex: bool,
    /// Lease, time limits and label.
    pub client: ClientOptions,
    credentials: Option<Credentials>,
    tls: Option<Tls>,
    dialects: Vec<(String, Dialect)>,
}

impl ZkConfig {
    /// The defaults for the servers that this URL names.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: EVERYBODYS.to_owned(),
            session_timeout: Duration::from_secs(10),
            tick_time: Duration::from_secs(2),
            access: Access::Everybody,
            unfair_mutex: false,
            client: ClientOptions::default(),
            credentials: None,
            tls: None,
            dialects: Vec::new(),
        }
    }

    /// Sets another prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets another session timeout.
    #[must_use]
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = timeout;
        self
    }

    /// Sets the `tickTime` of its servers.
    #[must_use]
    pub fn with_tick_time(mut self, tick: Duration) -> Self {
        self.tick_time = tick;
        self
    }

    /// Authenticates with the scheme `digest`. ZooKeeper keeps no users: clients with the same name and password are the same one.
    /// The password is sent as it is. Replaces earlier credentials.
    #[must_use]
    pub fn with_digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::Digest { user: user.into(), password: password.into() });
        self
    }

    /// Logs in as this user by SASL with `DIGEST-MD5`, of whom the servers know. Needs the feature `sasl`. It takes the place
    /// of credentials that were given before.
    #[must_use]
    pub fn with_sasl_digest(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some(Credentials::Sasl { user: user.into(), password: password.into() });
        self
    }

    /// Uses TLS to every server, with these certificates. Needs the feature `tls`.
    #[must_use]
    pub fn with_tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Speaks this dialect at this path, which other libraries' clients share
    /// ([`LockName::from_key`](lock_core::LockName::from_key)). Everywhere else it is [`Dialect::Curator`].
    #[must_use]
    pub fn with_dialect_at(mut self, path: impl AsRef<str>, dialect: Dialect) -> Self {
        self.dialects.push((without_root(path.as_ref()).to_owned(), dialect));
        self
    }

    /// Sets by whom its nodes may be touched.
    #[must_use]
    pub fn with_access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Sets whether its mutexes have [no queue](ZkConfig::unfair_mutex).
    #[must_use]
    pub fn with_unfair_mutex(mut self, unfair: bool) -> Self {
        self.unfair_mutex = unfair;
        self
    }

    /// Sets other options for its locks.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Returns the promises of a client with this configuration, as [`ZkLocks::connect_with`](crate::ZkLocks::connect_with) makes it. One
    /// that `connect_with_zookeeper_async` makes has no records: [`record`](Guarantees::record),
    /// [`record_across_restart`](Guarantees::record_across_restart) and
    /// [`record_across_failover`](Guarantees::record_across_failover) are [`Support::No`](lock_core::Support::No) there, as
    /// [`Client::guarantees`](lock_core::Client::guarantees) says.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let guarantees = crate::guarantees::of_queues();
        if self.unfair_mutex { crate::guarantees::unfair(guarantees) } else { guarantees }
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout { prefix: self.prefix.clone(), dialects: self.dialects.clone(), access_bytes: self.access.bytes() }
    }

    /// Everything that can be checked without a server.
    pub(crate) fn check(&self, by: ClientCrate) -> Result<SessionOptions, Error> {
        self.client.check()?;
        let parts = || self.prefix.split('/');
        if self.prefix.len() > 256 || parts().any(|part| matches!(part, "" | "." | "..")) {
            let what = format!("the prefix {:?} must have 1 to 256 bytes, and no empty, '.' or '..' part", self.prefix);
            return Err(invalid(what));
        }
        if is_within_another(&self.prefix) {
            let what =
                format!("the prefix {:?} lies within the locks of another one, as 'lock/mutex' does", self.prefix);
            return Err(invalid(what));
        }
        let (timeout, tick) = (self.session_timeout, self.tick_time);
        if timeout < Duration::from_millis(400) || timeout > Duration::from_secs(24 * 60 * 60) {
            return Err(invalid(format!("the session timeout is {timeout:?}, it must lie between 400ms and 24h")));
        }
        if tick < Duration::from_millis(1) || tick > longest_tick(timeout) {
            return Err(invalid(format!(
                "the tick is {tick:?}, it must lie between 1ms and four fifths of the session timeout, {timeout:?}"
            )));
        }
        access::check(&self.access, self.credentials.as_ref())?;
        if self.access != Access::Everybody && parts().next() == Some(EVERYBODYS) {
            let what =
                "nodes that are not for everybody need a prefix of their own, not below 'lock': ZkConfig::with_prefix";
            return Err(invalid(what.to_owned()));
        }
        let Target { servers, chroot, tls } = Target::parse(&self.url)?;
        #[cfg(feature = "zookeeper-async")]
        if by == ClientCrate::ZookeeperAsync {
            self.check_for_zookeeper_async(tls)?;
        }
        match &self.tls {
            Some(certificates) => check_tls(certificates, &servers)?,
            None if tls => return Err(invalid("zks:// needs an authority to trust: ZkConfig::with_tls".to_owned())),
            None => {}
        }
        let options = ConnectOptions {
            servers,
            chroot,
            prefix: self.prefix.clone(),
            timeout,
            credentials: self.credentials.clone(),
            tls: self.tls.clone(),
            access: self.access.clone(),
        };
        Ok(SessionOptions { client_crate: by, connect: options, tick, patience: self.client.patience })
    }

    /// Refuses whatever `zookeeper-async` cannot do.
    #[cfg(feature = "zookeeper-async")]
    fn check_for_zookeeper_async(&self, tls: bool) -> Result<(), Error> {
        let timeout = self.session_timeout;
        if timeout < SHORTEST_SESSION {
            let what =
                format!("the session timeout is {timeout:?}, zookeeper-async keeps none below {SHORTEST_SESSION:?}");
            return Err(invalid(what));
        }
        let what = match &self.credentials {
            Some(Credentials::Sasl { .. }) => "zookeeper-async has no SASL",
            _ if tls || self.tls.is_some() => "zookeeper-async has no TLS",
            _ if self.unfair_mutex => "zookeeper-async has no transactions, which an unfair mutex needs",
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Unsupported, Phase::Configure, what).with_backend(crate::guarantees::NAME))
    }
}

impl fmt::Debug for ZkConfig {
    /// Neither users nor passwords, also of a URL that should have none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.rsplit_once('@').map_or(&*self.url, |(_, behind)| behind);
        let url = url.split_once('?').map_or(url, |(before, _)| before);
        f.debug_struct("ZkConfig")
            .field("url", &url)
            .field("prefix", &self.prefix)
            .field("session_timeout", &self.session_timeout)
            .field("tick_time", &self.tick_time)
            .field("access", &self.access)
            .field("unfair_mutex", &self.unfair_mutex)
            .field("client", &self.client)
            .field("credentials", &self.credentials)
            .field("tls", &self.tls)
            .field("dialects", &self.dialects)
            .finish()
    }
}

/// Checks everything about certificates that can be checked without a server, for servers `host:port,host:port`.
#[cfg(feature = "tls")]
fn check_tls(tls: &Tls, servers: &str) -> Result<(), Error> {
    let invalid =
        |(what, cause)| Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME).with_source(cause);
    crate::client::check_tls(tls, servers).map_err(invalid)
}

#[cfg(not(feature = "tls"))]
fn check_tls(_: &Tls, _: &str) -> Result<(), Error> {
    let what = "TLS needs the feature `tls` of lock-zk";
    Err(Error::new(lock_core::ErrorKind::Unsupported, Phase::Configure, what).with_backend(crate::guarantees::NAME))
}

fn invalid(what: String) -> Error {
    Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let config = ZkConfig::new("zk://a");
        assert!(config.check(ClientCrate::ZookeeperClient).is_ok());
        for prefix in ["", "/", "a//b", "../a", "a/."] {
            assert!(config.clone().with_prefix(prefix).check(ClientCrate::ZookeeperClient).is_err(), "{prefix:?}");
        }
        for prefix in ["lock/mutex", "lock/semaphore/api", "a/forced"] {
            assert!(config.clone().with_prefix(prefix).check(ClientCrate::ZookeeperClient).is_err(), "{prefix:?}");
        }
        for prefix in ["apps/locks", "mutex"] {
            assert!(config.clone().with_prefix(prefix).check(ClientCrate::ZookeeperClient).is_ok(), "{prefix:?}");
        }
        let own = config.clone().with_digest("me", "secret").with_access(Access::Creator);
        for prefix in ["lock", "lock/mine"] {
            assert!(
                own.clone().with_prefix(prefix).check(ClientCrate::ZookeeperClient).is_err(),
                "{prefix:?} makes the default one"
            );
        }
        for prefix in ["mine", "locks", "apps/lock"] {
            assert!(own.clone().with_prefix(prefix).check(ClientCrate::ZookeeperClient).is_ok(), "{prefix:?}");
        }
        assert!(
            config
                .clone()
                .with_session_timeout(Duration::from_millis(100))
                .check(ClientCrate::ZookeeperClient)
                .is_err()
        );
        assert!(config.clone().with_tick_time(Duration::from_secs(60)).check(ClientCrate::ZookeeperClient).is_err());
        // The default tick is 2 s.
        let lasting = |milliseconds| config.clone().with_session_timeout(Duration::from_millis(milliseconds));
        let short = lasting(2_499).check(ClientCrate::ZookeeperClient).unwrap_err().to_string();
        assert!(short.contains("2s") && short.contains("2.499s"), "{short}");
        assert!(lasting(2_500).check(ClientCrate::ZookeeperClient).is_ok());
        assert!(
            config.clone().with_access(Access::Creator).check(ClientCrate::ZookeeperClient).is_err(),
            "without credentials"
        );
        let creator = config.clone().with_access(Access::Creator).with_digest("me", "secret");
        assert!(creator.check(ClientCrate::ZookeeperClient).is_err(), "where everybody else is");
        assert!(creator.with_prefix("mine").check(ClientCrate::ZookeeperClient).is_ok());
        assert!(
            config
                .clone()
                .with_prefix("mine")
                .with_access(Access::Only(Vec::new()))
                .check(ClientCrate::ZookeeperClient)
                .is_err()
        );
        assert!(config.with_digest("a:b", "").check(ClientCrate::ZookeeperClient).is_err());
    }

    #[cfg(feature = "zookeeper-async")]
    #[test]
    fn what_zookeeper_async_cannot_do_is_refused() {
        let config = ZkConfig::new("zk://a");
        assert!(config.check(ClientCrate::ZookeeperAsync).is_ok());
        assert!(config.clone().with_digest("me", "secret").check(ClientCrate::ZookeeperAsync).is_ok());
        let short = config.clone().with_session_timeout(Duration::from_millis(1900));
        let short = short.with_tick_time(Duration::from_millis(200));
        assert!(short.check(ClientCrate::ZookeeperClient).is_ok());
        assert_eq!(short.check(ClientCrate::ZookeeperAsync).unwrap_err().kind(), ErrorKind::InvalidArgument);
        for unsupported in [
            config.clone().with_sasl_digest("me", "secret"),
            config.with_tls(Tls::new("")),
            ZkConfig::new("zks://a"),
            ZkConfig::new("zk://a").with_unfair_mutex(true),
        ] {
            let error = unsupported.check(ClientCrate::ZookeeperAsync).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{unsupported:?}");
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn tls_without_its_feature_is_refused() {
        let config = ZkConfig::new("zks://a").with_tls(Tls::new(""));
        assert_eq!(config.check(ClientCrate::ZookeeperClient).unwrap_err().kind(), lock_core::ErrorKind::Unsupported);
    }

    #[test]
    fn neither_user_nor_password_is_printed() {
        for config in [
            ZkConfig::new("zk://a").with_digest("U5ER", "S3CRET"),
            ZkConfig::new("zk://a").with_sasl_digest("U5ER", "S3CRET"),
        ] {
            let shown = format!("{config:?}{:?}", config.check(ClientCrate::ZookeeperClient));
            assert!(shown.contains("zk://a") && !shown.contains("U5ER") && !shown.contains("S3CRET"), "{shown}");
        }
    }
}
