//! The conformance suite on a master with replicas, found by its sentinels, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use lock_testkit::servers::redis::SentinelDeployment;

use harness::Redis;

fn main() -> ExitCode {
    lock_testkit::main::<Redis<SentinelDeployment>>()
}
