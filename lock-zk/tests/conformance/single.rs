//! The conformance suite on a real ZooKeeper server, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit::servers::zookeeper::ZooKeeperServer;

use harness::{Deployment, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer>>()
}

#[async_trait]
impl Deployment for ZooKeeperServer {
    const NAME: &'static str = "zookeeper";

    async fn start() -> Result<Self, Missing> {
        ZooKeeperServer::start().await
    }

    fn url(&self) -> &str {
        self.url()
    }
}
