//! The scripts by themselves, on a real server and under a clock that the test sets: the short ways of the mutex compared with
//! the long ones, crowds, records, turns. Random sequences, compared step by step with the specification and with the simulated
//! server, are in `tests/simulation/tests/agreement`.

#![cfg(test)]

mod batches;
mod counter;
mod crowds;
mod dead;
mod heartbeat_short;
mod leave;
mod lock;
mod misfits;
mod quorum;
/// Shared with the tests of a quorum.
#[path = "../shared/quorum_scripts.rs"]
mod quorum_scripts;
mod random_state;
mod record;
mod several;
mod short_ways;
mod short_ways_of_holders;
mod tickets;
mod turns;

#[path = "../../src/store/digest.rs"]
mod digest;

/// The scripts, put together as the library does it.
#[path = "../../src/store/scripts.rs"]
mod scripts;

#[path = "../../src/store/redisson.rs"]
mod redisson;
