//! The conformance suite on a real ZooKeeper server, which it starts itself.

mod harness;

use std::process::ExitCode;

use lock_testkit::servers::zookeeper::ZooKeeperServer;

use harness::ZooKeeper;

fn main() -> ExitCode {
    lock_testkit::main::<ZooKeeper<ZooKeeperServer>>()
}
