//! Configuration of a client: how to connect, and the settings that all of its locks share.

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::Attempt;
use lock_core::{ClientOptions, Error, ErrorKind, Guarantees, LeaseOptions, Phase};

use crate::address::Address;
use crate::network::{Network, SystemNetwork};
use crate::store::keys::{Keys, item_ttl};
use crate::url;

/// Configuration of a [`MemcachedLocks`](crate::MemcachedLocks) client.
///
/// ```
/// use std::time::Duration;
/// use lock_memcached::{MemcachedConfig, RestartPolicy};
///
/// let config = MemcachedConfig::new("memcached://127.0.0.1:11211")
///     .with_prefix("billing")
///     .with_longest_lease(Duration::from_secs(15))
///     .with_restart_policy(RestartPolicy::EndEarly);
/// # drop(config);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct MemcachedConfig {
    /// URL of the server, `memcached://host[:port]`: one server, without users, passwords and TLS. The host's address is looked
    /// up when the client connects.
    pub url: String,
    /// Prefix of every key, except keys given by [`LockName::from_key`](lock_core::LockName::from_key). Clients with
    /// different prefixes do not see each other's locks, and must not share such a key. `"lock"` by default; at most 64 bytes
    /// as they are in keys, where odd characters take three.
    pub prefix: String,
    /// Lease, time limits and label.
    pub client: ClientOptions,
    /// The longest lease that a lock may have, and so the time for which nobody is granted a lock after a restart. All
    /// clients of one prefix have to agree on it. 30 s by default, at most 511 s. It bounds no lease with
    /// [`RestartPolicy::Off`]: there a lock may have up to 24 h.
    pub longest_lease: Duration,
    /// Protection against two holders when the server restarts or is flushed.
    pub restart_policy: RestartPolicy,
    /// Refuse a server that evicts items when its memory is full, rather than warn: when the client connects, and when the server
    /// comes back so after a restart.
    pub refuse_eviction: bool,
    /// Longest pause of a waiting client between two looks, before jitter; 25 ms by default.
    pub longest_pause: Duration,
    /// Readers for which a read-write lock has room. All clients of one prefix have to agree on it: one with another
    /// number than the others is refused when it locks. 64 by default, at most 1,000.
    pub readers: u32,
    /// Most connections that the client opens; 32 by default. A call on a runtime that nobody drives any more keeps its own beside
    /// them, until it is dropped.
    pub connections: usize,
    /// The network that is not the system's.
    network: Option<Arc<dyn Network>>,
}

/// Protection against two holders when the server forgets its locks: it restarts, or somebody flushes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartPolicy {
    /// After a restart or a flush nobody is granted a lock until the longest lease is over. So it is too when the prefix
    /// is used for the first time.
    #[default]
    Quarantine,
    /// A quarantine that ends early if the server's `stats` show that it cannot have forgotten a lock whose lease still runs:
    /// it has been up for 4 s longer than the longest lease, was never flushed, and has evicted and moved nothing. What they
    /// do not show: a `stats reset`, a `flush_all` with a delay, an epoch that was deleted by hand, a server that took another one's
    /// place and had been running before (a client that was there sees that its name leads elsewhere).
    EndEarly,
    /// Locks are granted at once after a restart or a flush, while former holders still believe in theirs: **two holders
    /// at once**, for up to the longest lease, and the former one's renewal or release may meet the next one's lock. There
    /// are no fencing tokens, and a paused server is not noticed. One client with this takes the guarantee from all clients
    /// of its prefix. For locks that only save work.
    Off,
}

impl std::fmt::Debug for MemcachedConfig {
    /// Without the URL, which may carry a password although none is supported.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemcachedConfig")
            .field("prefix", &self.prefix)
            .field("client", &self.client)
            .field("longest_lease", &self.longest_lease)
            .field("restart_policy", &self.restart_policy)
            .field("refuse_eviction", &self.refuse_eviction)
            .field("longest_pause", &self.longest_pause)
            .field("readers", &self.readers)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl MemcachedConfig {
    /// The defaults for the server that this URL names.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "lock".to_owned(),
            client: ClientOptions::default(),
            longest_lease: Duration::from_secs(30),
            restart_policy: RestartPolicy::default(),
            refuse_eviction: false,
            longest_pause: Duration::from_millis(25),
            readers: 64,
            connections: 32,
            network: None,
        }
    }

    /// Sets the prefix.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets lease, time limits and label.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }

    /// Sets the longest lease.
    #[must_use]
    pub fn with_longest_lease(mut self, longest: Duration) -> Self {
        self.longest_lease = longest;
        self
    }

    /// Sets the protection across restarts.
    #[must_use]
    pub fn with_restart_policy(mut self, policy: RestartPolicy) -> Self {
        self.restart_policy = policy;
        self
    }

    /// Sets whether a server that may evict a lock is refused.
    #[must_use]
    pub fn with_refuse_eviction(mut self, refuse: bool) -> Self {
        self.refuse_eviction = refuse;
        self
    }

    /// Sets the longest pause between two looks of a waiting client.
    #[must_use]
    pub fn with_longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// Sets the number of readers for which a read-write lock has room.
    #[must_use]
    pub fn with_readers(mut self, readers: u32) -> Self {
        self.readers = readers;
        self
    }

    /// Sets the most connections that the client opens.
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Connects over a network that is not the system's. For the simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn with_network(mut self, network: Arc<dyn Network>) -> Self {
        self.network = Some(network);
        self
    }

    pub(crate) fn network(&self) -> Arc<dyn Network> {
        self.network.clone().unwrap_or_else(|| Arc::new(SystemNetwork))
    }

    /// Returns the promises of a client with this configuration, on a server that evicts nothing (`-M`). A client of one that
    /// does says so in its own [`guarantees`](lock_core::Client::guarantees).
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        crate::guarantees::on_one_server(self.restart_policy != RestartPolicy::Off)
    }

    /// The longest lease that is granted: without a quarantine none has to end in time for it.
    pub(crate) fn bound(&self) -> LongestLease {
        let is_off = self.restart_policy == RestartPolicy::Off;
        LongestLease::new(if is_off { LeaseOptions::MAX_TTL } else { self.longest_lease })
    }

    /// Everything that can be checked without a server.
    pub(crate) fn check(&self) -> Result<Address, Error> {
        self.client.check()?;
        let Self { prefix, longest_lease: longest, longest_pause: pause, readers, connections, .. } = self;
        if prefix.is_empty() || Keys::new(prefix).prefix().len() > 64 {
            return Err(invalid(format!("the prefix {prefix:?} must have 1 to 64 bytes, as it is in keys")));
        }
        if *longest < Duration::from_secs(1) || *longest > LongestLease::MOST {
            return Err(invalid(format!(
                "longest_lease is {longest:?}, it must lie between 1s and {:?}",
                LongestLease::MOST
            )));
        }
        let (ttl, bound) = (self.client.lease.ttl, self.bound().get());
        if ttl > bound {
            return Err(invalid(format!("the TTL {ttl:?} is above longest_lease, {bound:?}")));
        }
        if *pause < Duration::from_millis(1) || *pause > Duration::from_secs(1) {
            return Err(invalid(format!("longest_pause is {pause:?}, it must lie between 1ms and 1s")));
        }
        if !(1..=1000).contains(readers) || !(1..=1000).contains(connections) {
            return Err(invalid(format!(
                "{readers} readers, {connections} connections: both must lie between 1 and 1,000"
            )));
        }
        url::parse(&self.url)
    }
}

fn invalid(what: String) -> Error {
    Error::invalid(Phase::Configure, what).with_backend(crate::guarantees::NAME)
}

/// The longest lease that a client grants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestLease(Duration);

impl LongestLease {
    /// The most that an epoch can say.
    pub(crate) const MOST: Duration = Duration::from_secs((1 << 9) - 1);

    pub(crate) fn new(longest: Duration) -> Self {
        Self(longest)
    }

    /// Refuses an attempt with a longer TTL.
    pub(crate) fn check(self, attempt: &Attempt, ttl: Duration) -> Result<(), Error> {
        if ttl <= self.0 {
            return Ok(());
        }
        let what = format!("the TTL is {ttl:?}, above the client's longest_lease of {:?}", self.0);
        Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what))
    }

    /// The longest lease itself.
    pub(crate) fn get(self) -> Duration {
        self.0
    }

    /// The TTL of an item that is to outlast every lease, in seconds.
    pub(crate) fn item_ttl(self) -> u32 {
        item_ttl(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let config = || MemcachedConfig::new("memcached://a");
        assert!(config().check().is_ok());
        let mut long = ClientOptions::default();
        long.lease = LeaseOptions::new(Duration::from_secs(31));
        for (wrong, what) in [
            (config().with_prefix(""), "prefix"),
            (config().with_prefix(":".repeat(22)), "prefix"),
            (config().with_longest_lease(Duration::ZERO), "longest_lease"),
            (config().with_longest_lease(Duration::from_secs(512)), "longest_lease"),
            (config().with_client(long), "longest_lease"),
            (config().with_longest_pause(Duration::ZERO), "longest_pause"),
            (config().with_readers(0), "readers"),
            (config().with_connections(0), "connections"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn without_a_quarantine_the_client_s_ttl_may_be_above_the_longest_lease() {
        let config = |ttl| {
            let client = ClientOptions::default().with_lease(LeaseOptions::new(ttl));
            MemcachedConfig::new("memcached://a").with_client(client).with_restart_policy(RestartPolicy::Off)
        };
        for ttl in [Duration::from_secs(31), LeaseOptions::MAX_TTL] {
            config(ttl).check().unwrap();
            let error = config(ttl).with_restart_policy(RestartPolicy::EndEarly).check().unwrap_err();
            assert!(error.to_string().contains("longest_lease"), "{error}");
        }
    }
}
