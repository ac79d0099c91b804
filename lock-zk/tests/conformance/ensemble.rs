//! The conformance suite on three ZooKeeper servers, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::zookeeper::ZooKeeperEnsemble;

use harness::{Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperEnsemble>>()
}

#[async_trait]
impl Servers for ZooKeeperEnsemble {
    const FAULTS: &'static [ServerFault] = &[ServerFault::FailOver];

    async fn disposable_server(_: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(Self::start_own().await?))
    }
}
