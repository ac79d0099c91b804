//! ZooKeeper's mechanisms under bad input and faults, on real servers that each test has for itself: sessions are stolen,
//! servers are frozen, killed and cut off. Nobody believes in a lock that is gone, nothing is left behind, and the same client
//! works again when the fault is over.
//!
//! Without ZooKeeper each test says that it was skipped; with `LOCK_TESTKIT_REQUIRE=1` it fails.

#![cfg(test)]

mod batches;
mod behind;
mod closed;
mod crowds;
mod cut;
mod dialects;
mod far;
mod flood;
mod hand_over;
mod input;
mod kept;
mod late;
mod leave;
mod left;
mod load;
mod lost;
mod meter;
mod numbers;
mod panics;
mod parts;
mod patience;
mod permit_claims;
mod permit_hand_over;
mod permits;
mod queue;
mod records;
mod rights;
mod runtimes;
#[cfg(feature = "sasl")]
mod sasl;
mod session;
mod several;
mod shared;
mod silent;
mod support;
mod swallowed;
#[cfg(feature = "tls")]
mod tls;
mod unfair;
mod unpolled;

use lock_zk::{Error, LossReason, Phase, ZkConfig, ZkLocks};

/// The constructor by which clients come.
async fn connect(config: ZkConfig) -> Result<ZkLocks, Error> {
    ZkLocks::connect_with(config).await
}

/// Whether an answer that is swallowed costs the connection.
const COSTS_CONNECTION: bool = false;

/// The reasons that holders are told for a session that is gone.
const SESSION_LOST: &[LossReason] = &[LossReason::SessionExpired];

/// The tries to open a session that are waited for, each of which the crate tells of.
const TOLD_WHILE_OPENED: usize = 3;

/// The phases in which a client that lacks the right to the prefix learns that.
const DENIED_AT: &[Phase] = &[Phase::Acquire, Phase::Wait];
