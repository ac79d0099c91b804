//! Recipes on locks, for any backend of [`lock_core`]: a job that runs [once](Once) per slot, and a [leader](Election) among processes.
//!
//! Both stand on [`RecordedMutex`]: a mutex with a record beside it, which only the latest holder can write.
//! They use nothing else of a backend, and promise whatever it promises of its mutex and its record.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use lock_core::MemoryLocks;
//! use lock_recipes::{Once, Outcome, Slot};
//!
//! let locks = MemoryLocks::new(); // or RedisLocks::connect("redis://…").await?
//! let once = Once::new(locks.recorded("nightly report")?);
//! let slot = Slot::from(17); // or Slot::at(the planned time), the same one in every process
//!
//! assert!(matches!(once.run(slot, |_| async { "sent" }).await?, Outcome::Ran("sent")));
//! assert!(matches!(once.run(slot, |_| async { "sent" }).await?, Outcome::Skipped { .. })); // also in another process
//! # Ok(()) }
//! ```
//!
//! [`RecordedMutex`]: lock_core::RecordedMutex

#![forbid(unsafe_code)]

mod announcement;
mod election;
mod leadership;
mod once;
mod outcome;
mod progress;
mod release;
mod slot;
mod standing;
mod term;
mod watch;

pub use election::{Election, Leader};
pub use leadership::Leadership;
pub use once::{Attempts, Failures, Once};
pub use outcome::{OnceError, Outcome};
pub use slot::Slot;
pub use term::Term;
pub use watch::LeadershipWatch;
