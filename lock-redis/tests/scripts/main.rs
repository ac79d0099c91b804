//! The scripts by themselves: random sequences of them, on a real server and under a clock that the test sets, compared
//! step by step with a model of what they promise; and the short ways of the mutex compared with the long ones.
//!
//! A failure names its seed; the same seed makes the same sequence.

#![cfg(test)]

mod batches;
mod crowds;
mod dead;
mod heartbeat_short;
mod lock;
mod misfits;
mod model;
mod record;
mod sequence;
mod short_ways;
mod turns;

#[path = "../../src/store/digest.rs"]
mod digest;

/// The scripts, put together as the library does it.
#[path = "../../src/store/scripts.rs"]
mod scripts;

#[path = "../../src/store/redisson.rs"]
mod redisson;
