//! Distributed locks on memcached: the safest lock that a cache can carry.
//!
//! **The first lock takes half a minute.** When a prefix is used for the first time, nobody is granted a lock until the longest lease is
//! over, about 32 s with the defaults: a `lock` waits, a try is [`Unavailable`](ErrorKind::Unavailable). For tests there are
//! [`with_longest_lease`](MemcachedConfig::with_longest_lease) and [`RestartPolicy::Off`].
//!
//! ```no_run
//! # async fn doc() -> Result<(), lock_memcached::Error> {
//! use lock_memcached::MemcachedLocks;
//!
//! let locks = MemcachedLocks::connect("memcached://127.0.0.1").await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! // … work, under `guard.while_held(…)` or with `guard.fencing_token()` …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Where it fails
//! - A restart or a flush forgets every lock. Two holders are kept apart ([`RestartPolicy`]), but nobody is granted a lock until the longest
//!   lease is over; with [`RestartPolicy::Off`] there are two.
//! - A server that evicts items (one without `-M`) evicts locks: the lock is free, and its holder finds out at its next renewal.
//! - A dead holder's lock is free up to 6 s after its TTL.
//! - No order among processes and no push: waiters ask, and whoever asks at the right moment has the lock.
//! - On a key that is shared with other libraries, a restart or a flush may let two in.
//! - A holder that is paused between its look at [`is_held`](Lease::is_held) and its write: only a [fencing token](Fenced) that the
//!   resource checks stops it.
//!
//! [`Client::guarantees`] says what holds as it is configured, and [`Client::require`] refuses what does not suffice. The README begins with
//! what it cannot promise; then the algorithm, the keys, the guarantees and more of where they fail.

#![forbid(unsafe_code)]

mod acquire;
mod address;
mod adopt;
mod backend;
mod client;
mod config;
mod connect;
mod epoch;
mod error;
mod guarantees;
mod inspect;
mod items;
mod kinds;
mod leave;
#[doc(hidden)]
pub mod network;
mod records;
mod registry;
mod release;
mod renew;
mod slots;
mod store;
mod url;
mod wait;

use std::ops::Deref;

pub use backend::MemcachedBackend;
pub use config::{MemcachedConfig, RestartPolicy};
pub use lock_core::{
    Client, ClientOptions, DetachError, DetachedMutex, DowngradeError, Ended, Ending, Error, ErrorKind, ExpiresWithin,
    Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex,
    FencedRwLock, FencedWriteGuard, FencingToken, GrantId, Guarantee, Guarantees, Holder, Inspection, Lease,
    LeaseOptions, LeaveError, LockName, Locks, LossReason, Lost, MemoryLocks, Mutex, MutexGuard, Owner, Permit,
    PermitToken, Phase, ReadGuard, Record, RecordedGuard, RecordedMutex, ReentrantGuard, ReentrantMutex, Retry, RwLock,
    Semaphore, Support, Waiter, WorkError, WriteGuard, clock, fence, memory, multi,
};

/// Decisions without I/O, for the models of this workspace. Outside of semver: they change with any release.
#[doc(hidden)]
pub mod machine {
    pub use crate::epoch::{Epoch, EpochWatch, GateVerdict, NotNow};
    pub use crate::wait::hand_over::{HandOverAnswer, HandedOver};
    pub use crate::wait::turns::{AfterTry, Standing, Ticket, Tried, Turns, WaitLimits};
}

/// A client of one memcached server. Dereferences to [`Client`], which makes the handles.
///
/// # Examples
///
/// ```no_run
/// # async fn doc() -> Result<(), lock_memcached::Error> {
/// use lock_memcached::MemcachedLocks;
///
/// let locks = MemcachedLocks::connect("memcached://127.0.0.1:11211").await?;
/// let guard = locks.mutex("orders/42").lock().await?;
/// // Nobody else has it now, until it is released or `guard.lost()` says so.
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MemcachedLocks(Client<MemcachedBackend>);

impl MemcachedLocks {
    /// Connects with the default options to the server that this URL names: `memcached://host[:port]`.
    ///
    /// Its steps are to resolve the name, to look at the epoch, to put it back where it is missing, to look at it again, and to ask
    /// how the server is set up. All of them together end within one operation timeout.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the server cannot be reached, [`ErrorKind::Unsupported`] if it cannot carry locks (it
    /// runs with `-C`), [`ErrorKind::InvalidArgument`] for a wrong URL.
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call but, perhaps, the epoch of a prefix that is used for the first time.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::connect_with(MemcachedConfig::new(url)).await
    }

    /// Connects with these options. The client lives on the tokio runtime on which it was connected. Calls may be made on other
    /// runtimes too. If such a runtime stops being driven in the middle of a call, the call holds nobody else up: once it is dropped, the
    /// client's own runtime ends it after a few operation timeouts; until then it keeps its connection.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] also if an option is out of its range, or the clients of this prefix have agreed on another
    /// [`longest_lease`](MemcachedConfig::longest_lease); the others of [`connect`](MemcachedLocks::connect).
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call but, perhaps, the epoch of a prefix that is used for the first time.
    pub async fn connect_with(config: MemcachedConfig) -> Result<Self, Error> {
        // Boxed: it is large, and would be a part of the caller's future.
        let backend = Box::pin(connect::connect(&config)).await?;
        Client::new(backend, config.client).map(Self)
    }
}

impl Deref for MemcachedLocks {
    type Target = Client<MemcachedBackend>;

    fn deref(&self) -> &Client<MemcachedBackend> {
        &self.0
    }
}

impl From<&MemcachedLocks> for Locks {
    fn from(MemcachedLocks(client): &MemcachedLocks) -> Self {
        Self::new(client)
            .with_reentrant(client)
            .with_rwlock(client)
            .with_semaphore(client)
            .with_record(client)
            .with_adopt(client)
    }
}

impl From<MemcachedLocks> for Locks {
    fn from(locks: MemcachedLocks) -> Self {
        Self::from(&locks)
    }
}

#[cfg(test)]
mod tests;
