//! The conformance suite on a real ZooKeeper server, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::zookeeper::ZooKeeperServer;

use harness::{Servers, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer>>()
}

#[async_trait]
impl Servers for ZooKeeperServer {
    const FAULTS: &'static [ServerFault] = &[ServerFault::Restart];

    async fn disposable_server(_: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(Self::start_own().await?))
    }
}
