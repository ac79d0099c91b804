//! The conformance suite of `lock-redis` on the simulated Redis instead of a real one, over real connections and in real
//! time: what passes it, the seeds may be built on.

#[path = "../../../../lock-redis/tests/conformance/foreign.rs"]
mod foreign;
#[path = "../../../../lock-redis/tests/conformance/harness.rs"]
mod harness;
mod simulated;

use std::process::ExitCode;

use harness::Redis;
use simulated::Simulated;

fn main() -> ExitCode {
    lock_testkit::main::<Redis<Simulated>>()
}
