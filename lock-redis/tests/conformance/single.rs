//! The conformance suite on a real `redis-server`, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use async_trait::async_trait;
use lock_testkit::{DisposableServer, Missing, ServerFault};
use lock_testkit_servers::ClockedRedis;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};

use harness::{Arrangement, Redis};

fn main() -> ExitCode {
    lock_testkit::main::<Redis<RedisServer>>()
}

#[async_trait]
impl Arrangement for RedisServer {
    const FAULTS: &'static [ServerFault] = &[ServerFault::ClockStep, ServerFault::Restart, ServerFault::Flush];

    async fn disposable_server(fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(match fault {
            ServerFault::ClockStep => Box::new(ClockedRedis::start().await?),
            _ => Box::new(RedisServer::start_with(&RedisOptions::new().persistent()).await?),
        })
    }
}
