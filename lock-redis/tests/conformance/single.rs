//! The conformance suite on a real `redis-server`, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use lock_testkit::servers::redis::RedisServer;

use harness::Redis;

fn main() -> ExitCode {
    lock_testkit::main::<Redis<RedisServer>>()
}
