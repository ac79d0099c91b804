//! The conformance suite on a cluster, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit::servers::redis::ClusterDeployment;

use harness::{Deployment, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<ClusterDeployment>>()
}

#[async_trait]
impl Deployment for ClusterDeployment {
    const NAME: &'static str = "redis cluster";

    async fn start() -> Result<Self, Missing> {
        ClusterDeployment::start().await
    }

    fn url(&self) -> &str {
        self.url()
    }
}
