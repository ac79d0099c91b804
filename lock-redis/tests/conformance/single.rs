//! The conformance suite on a real `redis-server`, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::servers::ClockedRedis;
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::{Harm, Missing, Spare};

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<RedisServer>>()
}

#[async_trait]
impl Arrangement for RedisServer {
    const HARMS: &'static [Harm] = &[Harm::ClockStep];

    async fn spare(_: Harm) -> Result<Box<dyn Spare>, Missing> {
        Ok(Box::new(ClockedRedis::start().await?))
    }
}
