//! Distributed locks: mutex, reentrant, read-write and semaphore, with fencing tokens, an honest loss signal and
//! leak-free cancellation, over backends that share one set of handles and guards.
//!
//! # Using a lock
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use std::time::Duration;
//! use lock_core::MemoryLocks;
//!
//! let locks = MemoryLocks::new(); // or RedisLocks::connect("redis://…").await?
//! let orders = locks.mutex("orders/42");
//!
//! let guard = orders.lock().await?;
//! assert!(guard.is_held());
//! assert!(orders.try_lock().await?.is_none()); // somebody holds it: no error
//! assert!(orders.try_lock_for(Duration::from_millis(10)).await?.is_none());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//! A guard is a [`Lease`]: it is renewed in the background, computes [`is_held`](Lease::is_held) from the clock, tells of
//! a loss through [`lost`](Lease::lost), and drops work with [`while_held`](Lease::while_held) before the lock can lapse.
//! A [`FencingToken`] lets a resource refuse a holder that is late; see [`fence`].
//!
//! # Watching locks
//! Through `tracing`, at level `DEBUG`: a span for each acquisition that asks the server (`lock.acquire`), each step
//! that asks for several locks at once (`lock.acquire_several`), each release that is waited for (`lock.release`), each mutex that is
//! left (`lock.leave`), each request for renewals (`lock.renew`) and each job in the background (`lock.reap`). Each carries its
//! `outcome`; a loss is an event at level `WARN`.
//!
//! | span | outcome, unless it is the kind of an error, or `cancelled` for a dropped future |
//! |---|---|
//! | `lock.acquire` | `granted`, `refused` |
//! | `lock.acquire_several` | `granted`, `refused`; `one_by_one` where the locks are taken one by one |
//! | `lock.release` | `released` |
//! | `lock.leave` | `left` |
//! | `lock.renew` | `answered`, with the numbers `renewed`, `held` (there, but not prolonged), `lost` and `unknown` |
//! | `lock.reap` | `done`, `given up` |
//!
//! Through `metrics`, labelled with the backend: the histograms `lock_wait_seconds`, `lock_wake_to_grant_seconds` (from the
//! push that woke a waiter to its guard), `lock_hold_seconds` and `lock_renewal_margin_seconds`; the counters
//! `lock_grants_total`, `lock_refusals_total`, `lock_acquire_errors_total` by kind, `lock_renewal_failures_total`,
//! `lock_losses_total` by reason and `lock_cleanups_given_up_total`. Install the recorder before connecting. Neither costs anything when unused.
//!
//! # Choosing a backend
//! [`MemoryLocks`] is complete, lives in one process and needs no server: the embedded default, the executable
//! specification, and the test double (virtual clock, injected loss and delays). For several processes take
//! `lock-redis`, `lock-zk` or `lock-memcached`. [`Guarantees`] says what each one promises; [`Client::require`] refuses what does not suffice. An
//! application that decides at run time stores one [`Locks`].
//!
//! # Platforms
//! Unix only. Leases are judged by a clock that counts time spent suspended: `CLOCK_BOOTTIME` on Linux and Android,
//! `CLOCK_MONOTONIC` elsewhere. See [`clock`] for virtual machines.
//!
//! # Writing a backend
//! See [`driver`]: a backend answers five questions, everything else is here.

#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!("lock-core needs a Unix: it takes the clock and the host's name from there");

mod acquire;
mod client;
pub mod clock;
pub mod driver;
mod erased;
mod error;
pub mod fence;
mod lease;
mod locks;
mod loss;
pub mod memory;
mod metrics;
mod name;
mod options;
mod owner;
mod owners;
mod shutdown;
mod sync;
mod token;
mod trace;

pub use client::Client;
pub use driver::{Guarantee, Guarantees, Holder, Inspection, Record, Support, Waiter};
pub use erased::Locks;
pub use error::{Error, ErrorKind, Phase, Retry};
pub use lease::{Ended, Ending, ExpiresWithin, Lease, LeaveError, Lost, WorkError};
pub use locks::{
    DetachError, DetachedMutex, DowngradeError, Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard,
    FencedReentrantGuard, FencedReentrantMutex, FencedRwLock, FencedWriteGuard, Mutex, MutexGuard, Permit, ReadGuard,
    RecordedGuard, RecordedMutex, ReentrantGuard, ReentrantMutex, RwLock, Semaphore, WriteGuard, multi,
};
pub use loss::LossReason;
pub use memory::MemoryLocks;
pub use name::LockName;
pub use options::{ClientOptions, LeaseOptions};
pub use owner::{GrantId, Owner};
pub use token::{FencingToken, PermitToken};

/// The pure state machine of a lease, for those who want to test against it.
#[doc(hidden)]
pub use lease::state as lease_state;
