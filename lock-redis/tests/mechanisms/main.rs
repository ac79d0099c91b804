//! Bad input and trouble, on a real server that each test has for itself: it is frozen, killed, starved of memory,
//! flushed and spoiled. What goes wrong is a typed error that names lock, server and phase, nothing is left behind, and
//! the same client works again when the trouble is over.
//!
//! Without a `redis-server` each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![cfg(test)]

mod answers;
mod batches;
mod bounds;
mod clock;
mod copies;
mod cost;
mod every_kind;
mod faults;
mod foreign;
mod freeze;
mod honest;
mod input;
mod late;
mod links;
#[path = "../shared/mistaken_network.rs"]
mod mistaken_network;
mod names;
mod outage;
mod owners;
mod panics;
mod permits;
mod pushes;
mod queue;
mod readers;
mod reconnects;
mod redisson;
mod refusal;
mod relay;
mod rights;
mod secrets;
mod server;
mod several;
mod stalls;
mod tokens;
mod turns;
