//! The servers and deployments that the testkit starts: they answer, fail over, and leave nothing behind.
//!
//! Without the servers each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![cfg(test)]

mod cluster;
mod ensemble;
mod independent;
mod killed;
mod memcached;
mod sentinel;
mod single;
mod support;
mod tls;
mod zookeeper;
