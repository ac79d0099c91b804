//! The conformance suite on three ZooKeeper servers, which it starts itself.

mod harness;

use std::process::ExitCode;

use lock_testkit::servers::zookeeper::ZooKeeperEnsemble;

use harness::{Client, ZooKeeper};

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperEnsemble>>()
}

impl Client for ZooKeeperEnsemble {}
