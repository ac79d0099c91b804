//! Mechanisms of lock-memcached, on servers that are in trouble: one restarts, is flushed, stands still, is full, or is read slowly.
//!
//! Without a server each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails. The long runs are ignored:
//! `cargo test -p lock-memcached --test mechanisms -- --ignored --nocapture`.

#![cfg(test)]

mod adoption;
mod batches;
mod claims;
mod forced;
mod forgets;
mod holders;
mod lives;
mod memory;
mod pauses;
mod queue;
mod reader;
mod records;
mod refusals;
mod renewals;
mod runtimes;
mod setup;
mod slots;
mod support;
mod waiting;
mod writers;
