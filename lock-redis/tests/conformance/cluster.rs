//! The conformance suite on a cluster, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::redis::ClusterDeployment;

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<ClusterDeployment>>()
}

#[async_trait]
impl Arrangement for ClusterDeployment {
    const FAULTS: &'static [ServerFault] = &[ServerFault::FailOver];

    async fn disposable_server(_: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(ClusterDeployment::start_own().await?))
    }
}
