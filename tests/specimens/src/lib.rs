//! Deliberately broken locks: the classic recipes, each rejected by a named case of the one list.
//!
//! They show that the cases can fail. They live here and never in a backend. Each is a [`MutexBackend`] on a real server,
//! or on a shelf in memory, on ZooKeeper an [`RwLockBackend`] too, spoken to through the suite's own clients, and differs
//! from a sound reference at the same server in nothing but its flaw; the reference passes every case that rejects one of
//! them. `docs/specimens.md` tells the story of each.
//!
//! [`MutexBackend`]: lock_core::driver::MutexBackend
//! [`RwLockBackend`]: lock_core::driver::RwLockBackend

#![forbid(unsafe_code)]

mod backend;
pub mod memcached;
pub mod redis;
pub mod shelf;
pub mod zookeeper;

use std::time::Duration;

use lock_testkit::ms;

/// The rejection of a specimen by a case, and the symptom that it shows.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Rejection<R> {
    /// The broken lock.
    pub recipe: R,
    /// The case that rejects it.
    pub case: &'static str,
    /// Part of what the case says: that it was the flaw, and not something else.
    pub symptom: &'static str,
}

/// The time that one request may take, as in the suite.
fn op_timeout() -> Duration {
    ms(2000)
}
