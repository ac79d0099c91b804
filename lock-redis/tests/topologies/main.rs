//! Every way to arrange the servers, with real ones: TLS, Unix sockets, sentinels and clusters, planned failovers and
//! masters that are killed under load.
//!
//! Without a `redis-server` each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![cfg(test)]

mod astray;
mod cluster;
mod load;
#[path = "../shared/mistaken_network.rs"]
mod mistaken_network;
mod moving_name;
mod panics;
mod replicas;
mod rights;
mod sentinel;
mod single;
mod support;
#[cfg(feature = "tls")]
mod tls;
mod vanished;
