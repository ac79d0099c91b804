//! The conformance suite on a real `redis-server`, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::servers::ClockedRedis;
use lock_testkit::servers::redis::{RedisOptions, RedisServer};
use lock_testkit::{Harm, Missing, Spare};

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<RedisServer>>()
}

#[async_trait]
impl Arrangement for RedisServer {
    const HARMS: &'static [Harm] = &[Harm::ClockStep, Harm::Restart, Harm::Flush];

    async fn spare(harm: Harm) -> Result<Box<dyn Spare>, Missing> {
        Ok(match harm {
            Harm::ClockStep => Box::new(ClockedRedis::start().await?),
            _ => Box::new(RedisServer::start_with(&RedisOptions::new().persistent()).await?),
        })
    }
}
