//! The conformance suite on a master with replicas, found by its sentinels, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::redis::SentinelDeployment;

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<SentinelDeployment>>()
}

#[async_trait]
impl Arrangement for SentinelDeployment {
    const FAULTS: &'static [ServerFault] = &[ServerFault::FailOver];

    async fn disposable_server(_: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(SentinelDeployment::start_own().await?))
    }
}
