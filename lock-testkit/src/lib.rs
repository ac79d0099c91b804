//! The conformance suite for distributed-lock backends.
//!
//! # Using it
//! A backend plugs in with one file, `tests/conformance.rs` (`harness = false` in its `Cargo.toml`): a [`Harness`] and
//! one line of `main`.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use lock_core::driver::async_trait;
//! use lock_core::memory::{MemoryConfig, MemoryStore};
//! use lock_core::{Error, Locks};
//! use lock_testkit::{Harness, Missing};
//!
//! struct Memory(MemoryStore);
//!
//! #[async_trait]
//! impl Harness for Memory {
//!     fn name(&self) -> &'static str {
//!         "memory"
//!     }
//!
//!     async fn start() -> Result<Self, Missing> {
//!         Ok(Self(MemoryStore::new()))
//!     }
//!
//!     async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
//!         let mut config = MemoryConfig::default();
//!         config.namespace = namespace.to_owned();
//!         Ok(self.0.connect_with(config)?.into())
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     lock_testkit::main::<Memory>()
//! }
//! ```
//! There is one list of cases and nobody picks from it: every case that the backend's abilities admit is run, the
//! others are shown as ignored with the reason. `CASES.md` tells the claim behind each id.
//!
//! # What it does not depend on
//! No lock client, and no server: `lock-testkit-servers` starts real ones, and speaks the few wire commands that they and ground
//! truth need.
//!
//! # Tests beside it
//! A backend's own tests wait with a deadline, and judge what is about time as the suite does ([`testing`]),
//! and draw from its [`SeededRng`].
//!
//! [`fuzz`] makes up inputs for their parsers.
//!
//! # Histories
//! `lock-testkit-checker` writes down what processes do with their locks, judges it and draws it.
//!
//! # It can fail
//! The repository's `tests/specimens` has deliberately broken locks, the classic recipes of the literature, each rejected by
//! a named case.

#![forbid(unsafe_code)]

mod abilities;
mod adapters;
mod admission;
mod cases;
mod child;
mod contenders;
mod context;
mod error;
mod expected;
mod failure;
pub mod faults;
pub mod fuzz;
mod harness;
mod ignored;
mod isolated_client;
mod links;
mod meter;
mod mistaken_subscriber;
mod panics;
#[doc(hidden)]
pub mod processes;
mod run;
mod stalls;
mod stopped_runtime;
pub mod testing;
mod time;
mod trace;
mod void_runs;

pub use error::{HarnessError, Missing};
pub use failure::Failure;
pub use harness::{
    Admin, DisposableServer, DisposableServers, Foreign, GroundTruth, Harness, Linked, ServerFault, Sessions,
};
pub use lock_testkit_proxy as proxy;
pub use mistaken_subscriber::MistakenSubscriber;
pub use proxy::SeededRng;
pub use run::{Outcome, REQUIRE_VARIABLE, main, run_case};
pub use time::{SCALE_VARIABLE, ms};
