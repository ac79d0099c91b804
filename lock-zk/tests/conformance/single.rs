//! The conformance suite on a real ZooKeeper server, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::servers::zookeeper::ZooKeeperServer;
use lock_testkit::{Harm, Missing, Spare};

use harness::{Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer>>()
}

#[async_trait]
impl Servers for ZooKeeperServer {
    const HARMS: &'static [Harm] = &[Harm::Restart];

    async fn spare(_: Harm) -> Result<Box<dyn Spare>, Missing> {
        Ok(Box::new(Self::start_own().await?))
    }
}
