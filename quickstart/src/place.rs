//! The servers that the workers can meet on, as far as this program was built with their features.

use std::time::Duration;

use lock_core::memory::MemoryStore;
use lock_core::{Error, Locks};
#[cfg(feature = "redis")]
use lock_redis::RedisLocks;
#[cfg(feature = "zookeeper")]
use lock_zk::{ZkConfig, ZkLocks};

/// The shortest session that ZooKeeper grants by default.
#[cfg(feature = "zookeeper")]
const SESSION: Duration = Duration::from_secs(4);
/// ZooKeeper's default tick.
#[cfg(feature = "zookeeper")]
const TICK: Duration = Duration::from_secs(2);

/// The place where the locks are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Memory(MemoryStore),
    #[cfg(feature = "redis")]
    Redis(String),
    #[cfg(feature = "zookeeper")]
    ZooKeeper(String),
}

impl Place {
    /// The server of this URL; this process, without one.
    pub(crate) fn of(url: Option<&str>) -> Result<Self, String> {
        match url {
            None => Ok(Self::Memory(MemoryStore::new())),
            #[cfg(feature = "zookeeper")]
            Some(url) if url.starts_with("zk:") => Ok(Self::ZooKeeper(url.to_owned())),
            #[cfg(feature = "redis")]
            Some(url) if url.starts_with("redis") => Ok(Self::Redis(url.to_owned())),
            Some(url) => {
                let scheme = url.split_once("://").map_or("none", |(scheme, _)| scheme);
                Err(format!(
                    "this program was not built for URLs whose scheme is {scheme}: redis needs --features redis, zk --features \
                     zookeeper, before the two dashes"
                ))
            }
        }
    }

    /// A new client.
    pub(crate) async fn connect(&self) -> Result<Locks, Error> {
        Ok(match self {
            Self::Memory(store) => store.connect().into(),
            #[cfg(feature = "redis")]
            Self::Redis(url) => RedisLocks::connect(url).await?.into(),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(url) => {
                let config = ZkConfig::new(url).with_session_timeout(SESSION).with_tick_time(TICK);
                ZkLocks::connect_with(config).await?.into()
            }
        })
    }

    /// The longest time for which a lock outlives a holder that is not heard of any more.
    pub(crate) fn outlives(&self, ttl: Duration) -> Duration {
        match self {
            Self::Memory(_) => ttl,
            #[cfg(feature = "redis")]
            Self::Redis(_) => ttl,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(_) => SESSION + TICK,
        }
    }
}
