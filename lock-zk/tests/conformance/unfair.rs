//! The conformance suite on a real ZooKeeper server, which it starts itself, with mutexes that have no line.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_core::Locks;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{Error, ZkConfig, ZkLocks};

use harness::{Client, FOREIGN_STARVATION, Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer, Unfair>>()
}

impl Servers for ZooKeeperServer {}

struct Unfair;

#[async_trait]
impl Client for Unfair {
    fn name(_: &'static str) -> &'static str {
        "zookeeper, unfair mutex"
    }

    fn exclusions() -> &'static [(&'static str, &'static str)] {
        &[
            FOREIGN_STARVATION,
            ("C-F08", "who waits without a queue has nothing in its session that could be seen or lost"),
        ]
    }

    async fn connect(config: ZkConfig) -> Result<ZkLocks, Error> {
        ZkLocks::connect_with(config.with_unfair_mutex(true)).await
    }

    /// The other kinds are as they are without it.
    fn offer(client: ZkLocks) -> Locks {
        Locks::new(&client).with_record(&client)
    }
}
