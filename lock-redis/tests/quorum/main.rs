//! A quorum in trouble, on five real servers that each test has for itself: some of them are killed, frozen, spoiled or
//! come back without their data. A majority is enough for everything; without one there is a typed error and nothing
//! is left behind; and at no time do two holders overlap, but where the documentation says so.
//!
//! Without a `redis-server` each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![cfg(test)]

mod adoption;
mod away;
mod batches;
/// Shared with the tests of one server.
#[path = "../mechanisms/bounds.rs"]
mod bounds;
mod input;
mod late;
mod outage;
/// Shared with the tests of the scripts.
#[path = "../shared/quorum_scripts.rs"]
mod quorum_scripts;
mod race;
mod renewal;
mod restart;
mod runtimes;
mod servers;
mod split;
mod stall;
mod unknown;
mod waiting;
#[cfg(feature = "tls")]
mod ways;
