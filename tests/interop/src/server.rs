//! What all share: a server, and how each of its kinds differs.

use std::time::Duration;

use clap::ValueEnum;
use lock_core::{ClientOptions, LeaseOptions, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::RedisLocks;
use lock_testkit::Broken;
use lock_testkit::servers::memcached::{Memcached, MemcachedServer};
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::servers::resp::Resp;

/// Which kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Redis,
    Memcached,
}

/// Who takes part: a name, and the script that runs it, if it is not this program.
///
/// Each has its special turn, one after the other, in this order.
pub(crate) type Members = &'static [(&'static str, Option<&'static str>)];

impl Kind {
    pub(crate) fn members(self) -> Members {
        match self {
            Self::Redis => &[
                ("ours-1", None),
                ("redlock", Some("redlock.js")),
                ("redis-py-1", Some("redis_py.py")),
                ("ours-2", None),
                ("redis-py-2", Some("redis_py.py")),
                ("redis-semaphore", Some("redis_semaphore.js")),
            ],
            Self::Memcached => &[
                ("ours-1", None),
                ("pymemcache-1", Some("pymemcache_lock.py")),
                ("ours-2", None),
                ("pymemcache-2", Some("pymemcache_lock.py")),
            ],
        }
    }

    pub(crate) fn ttl(self) -> Duration {
        match self {
            Self::Redis => Duration::from_millis(2500),
            Self::Memcached => Duration::from_secs(3),
        }
    }

    /// How much longer than its TTL the key of a dead holder may live.
    pub(crate) fn kept(self) -> Duration {
        match self {
            Self::Redis => Duration::ZERO,
            Self::Memcached => Duration::from_secs(3),
        }
    }

    /// Until every interpreter runs and is connected, and locks are granted.
    pub(crate) fn preparation(self) -> Duration {
        match self {
            Self::Redis => Duration::from_secs(3),
            // A new server grants nothing until the leases of a former one would be over.
            Self::Memcached => Duration::from_secs(8),
        }
    }
}

/// A server of the run's own.
pub(crate) enum Server {
    Redis(RedisServer),
    Memcached(MemcachedServer),
}

impl Server {
    pub(crate) async fn start(kind: Kind) -> Result<Self, Broken> {
        Ok(match kind {
            Kind::Redis => Self::Redis(RedisServer::start_own().await?),
            Kind::Memcached => Self::Memcached(MemcachedServer::start_own().await?),
        })
    }

    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Redis(server) => server.url(),
            Self::Memcached(server) => server.url(),
        }
    }
}

/// Our locks at this URL.
pub(crate) async fn locks(url: &str, ttl: Duration) -> Result<Locks, Broken> {
    if !is_memcached(url) {
        return Ok(RedisLocks::connect(url).await?.into());
    }
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::with_ttl(ttl);
    let config = MemcachedConfig::new(url).with_client(client).with_longest_lease(ttl);
    Ok(MemcachedLocks::connect_with(config).await?.into())
}

/// The number that all count up under the lock.
pub(crate) enum Counter {
    Redis(Resp),
    Memcached(Memcached),
}

impl Counter {
    pub(crate) fn at(url: &str) -> Result<Self, Broken> {
        if is_memcached(url) {
            return Ok(Self::Memcached(MemcachedServer::existing(url)?.client()));
        }
        Ok(Self::Redis(Resp::from_url(url)?))
    }

    /// 0 if nobody has counted.
    pub(crate) async fn read(&self, key: &str) -> Result<u64, Broken> {
        let text = match self {
            Self::Redis(client) => client.command(&["GET", key]).await?.as_text(),
            Self::Memcached(client) => client.get(key).await?.map(|value| String::from_utf8_lossy(&value).into_owned()),
        };
        Ok(text.map_or(Ok(0), |text| text.trim().parse())?)
    }

    pub(crate) async fn write(&self, key: &str, value: u64) -> Result<(), Broken> {
        let value = value.to_string();
        match self {
            Self::Redis(client) => drop(client.command(&["SET", key, &value]).await?),
            Self::Memcached(client) => {
                drop(client.command(&format!("set {key} 0 0 {}\r\n{value}", value.len())).await?);
            }
        }
        Ok(())
    }
}

fn is_memcached(url: &str) -> bool {
    url.starts_with("memcached:")
}
