//! Bad input and trouble, on real servers that each test has for itself: sessions are stolen, servers are frozen, killed
//! and cut off. Nobody believes in a lock that is gone, nothing is left behind, and the same client works again when the
//! trouble is over.
//!
//! Without ZooKeeper each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test ends it")]

mod cut;
mod dialects;
mod input;
mod line;
mod load;
mod parts;
mod permits;
mod rights;
mod session;
mod support;
