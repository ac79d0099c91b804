//! The common interface of all servers for a harness, however many there are and whatever they speak.

use async_trait::async_trait;
use lock_testkit::Missing;

use super::memcached::MemcachedServer;
use super::redis::{ClusterDeployment, RedisServer, SentinelDeployment};
use super::zookeeper::{ZooKeeperEnsemble, ZooKeeperServer};

/// Servers that the suite starts, or is pointed to: one harness serves all arrangements of them.
#[async_trait]
pub trait Deployment: Send + Sync + Sized + 'static {
    /// The name in trials.
    const NAME: &'static str;

    /// The deployment that a variable names, or else one of the suite's own.
    ///
    /// # Errors
    /// [`Missing`], naming what to install, or what went wrong.
    async fn start() -> Result<Self, Missing>;

    /// The URL that clients connect to.
    fn url(&self) -> &str;
}

macro_rules! deployments {
    ($($servers:ident $name:literal,)+) => {
        $(#[async_trait]
        impl Deployment for $servers {
            const NAME: &'static str = $name;

            async fn start() -> Result<Self, Missing> {
                $servers::start().await
            }

            fn url(&self) -> &str {
                $servers::url(self)
            }
        })+
    };
}

deployments! {
    RedisServer "redis",
    SentinelDeployment "redis sentinel",
    ClusterDeployment "redis cluster",
    ZooKeeperServer "zookeeper",
    ZooKeeperEnsemble "zookeeper ensemble",
    MemcachedServer "memcached",
}
