//! The conformance suite on a cluster, which it starts itself.

mod foreign;
mod harness;

use std::process::ExitCode;

use lock_testkit::servers::redis::ClusterDeployment;

use harness::Redis;

fn main() -> ExitCode {
    lock_testkit::main::<Redis<ClusterDeployment>>()
}
