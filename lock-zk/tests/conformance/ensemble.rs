//! The conformance suite on three ZooKeeper servers, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::servers::zookeeper::ZooKeeperEnsemble;
use lock_testkit::{Harm, Missing, Spare};

use harness::{Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperEnsemble>>()
}

#[async_trait]
impl Servers for ZooKeeperEnsemble {
    const HARMS: &'static [Harm] = &[Harm::FailOver];

    async fn spare(_: Harm) -> Result<Box<dyn Spare>, Missing> {
        Ok(Box::new(Self::start_own().await?))
    }
}
