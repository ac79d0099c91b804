//! The conformance suite on a real ZooKeeper server, which it starts itself, over the client crate `zookeeper-async`.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{Error, ZkConfig, ZkLocks};

use harness::{Client, FOREIGN_STARVATION, Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer, ByZooKeeperAsync>>()
}

impl Servers for ZooKeeperServer {}

/// Measured: 524 connections in a second.
const STORM: &str =
    "the crate connects again at once, without a pause, when a connection is closed as soon as it is made";

struct ByZooKeeperAsync;

#[async_trait]
impl Client for ByZooKeeperAsync {
    fn name(_: &'static str) -> &'static str {
        "zookeeper, by zookeeper-async"
    }

    fn exclusions() -> &'static [(&'static str, &'static str)] {
        &[FOREIGN_STARVATION, ("C-F21", STORM)]
    }

    fn panics_at_the_end() -> &'static [(&'static str, &'static str)] {
        &[("zookeeper-async-5.0.0/src/io.rs", "its task for watches may end before the one that hands them over")]
    }

    async fn connect(config: ZkConfig) -> Result<ZkLocks, Error> {
        ZkLocks::connect_with_zookeeper_async(config).await
    }
}
