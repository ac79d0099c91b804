//! The conformance suite on a real `redis-server`, which it starts itself.

mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::Missing;
use lock_testkit::servers::redis::RedisServer;

use harness::{Deployment, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<RedisServer>>()
}

#[async_trait]
impl Deployment for RedisServer {
    const NAME: &'static str = "redis";

    async fn start() -> Result<Self, Missing> {
        RedisServer::start().await
    }

    fn url(&self) -> &str {
        self.url()
    }
}
