//! The conformance suite on a master with replicas, found by its sentinels, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit::servers::redis::SentinelDeployment;

use harness::{Deployment, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<SentinelDeployment>>()
}

#[async_trait]
impl Deployment for SentinelDeployment {
    const NAME: &'static str = "redis sentinel";

    async fn start() -> Result<Self, Missing> {
        SentinelDeployment::start().await
    }

    fn url(&self) -> &str {
        self.url()
    }
}
