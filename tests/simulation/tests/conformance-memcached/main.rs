//! The conformance suite of `lock-memcached` on the simulated memcached instead of a real one, over real connections and in real
//! time: what passes it, the seeds may be built on.

#[path = "../../../../lock-memcached/tests/conformance/harness.rs"]
mod harness;
mod simulated;

use std::process::ExitCode;

use harness::Memcache;
use simulated::Simulated;

fn main() -> ExitCode {
    lock_testkit::main::<Memcache<Simulated>>()
}
