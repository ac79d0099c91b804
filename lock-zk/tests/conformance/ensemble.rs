//! The conformance suite on three ZooKeeper servers, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit::servers::zookeeper::ZooKeeperEnsemble;

use harness::{Deployment, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperEnsemble>>()
}

#[async_trait]
impl Deployment for ZooKeeperEnsemble {
    const NAME: &'static str = "zookeeper ensemble";

    async fn start() -> Result<Self, Missing> {
        ZooKeeperEnsemble::start().await
    }

    fn url(&self) -> &str {
        self.url()
    }
}
