//! Distributed locks on Redis and Valkey.
//!
//! ```no_run
//! # async fn doc() -> Result<(), lock_redis::Error> {
//! use lock_redis::RedisLocks;
//!
//! let locks = RedisLocks::connect("redis://127.0.0.1/").await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! // … work, under `guard.while_held(…)` or with `guard.fencing_token()` …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Where it fails
//! No lock on one Redis server survives these. A [fencing token](Fenced) that the resource checks still protects it, except where tokens
//! may go back: after a loss of the data if the clock was set back too, and after a failover, by the replication's lag and the difference
//! of the two clocks.
//! - A restart without persistence, or from an old snapshot: locks are gone while their holders believe in them, until their next renewal.
//! - A failover to a replica: two holders are possible, for locks that it had not received.
//! - Eviction, `FLUSHALL`, a `DEL` by hand: the lock is free, and its holder finds out at its next renewal.
//! - A server's clock that steps forward ends leases early; one that steps back prolongs them.
//! - A holder that is paused between its look at [`is_held`](Lease::is_held) and its write.
//!
//! A [quorum](QuorumLocks) has no tokens, and may lose a lock if one of its servers forgets it, by a restart or an eviction.
//!
//! [`Client::guarantees`] says what holds as it is configured, and [`Client::require`] refuses what does not suffice. The README tells the
//! algorithm, the keys, the guarantees and more of where they fail.

#![forbid(unsafe_code)]

mod acquire;
mod address;
mod adopt;
mod backend;
mod cause;
mod client;
mod config;
mod confirm;
mod connect;
mod error;
mod guarantees;
mod inspect;
mod kinds;
mod leave;
#[doc(hidden)]
pub mod network;
pub mod quorum;
mod records;
mod registry;
mod release;
mod renew;
mod several;
mod store;
mod tls;
mod url;
mod wait;

use std::ops::Deref;

pub use backend::RedisBackend;
pub use config::{RedisConfig, Replicas};
pub use guarantees::Topology;
pub use lock_core::{
    Client, ClientOptions, DetachError, DetachedMutex, DowngradeError, Ended, Ending, Error, ErrorKind, ExpiresWithin,
    Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex,
    FencedRwLock, FencedWriteGuard, FencingToken, GrantId, Guarantee, Guarantees, Holder, Inspection, Lease,
    LeaseOptions, LeaveError, LockName, Locks, LossReason, Lost, MemoryLocks, Mutex, MutexGuard, Owner, Permit,
    PermitToken, Phase, ReadGuard, Record, RecordedGuard, RecordedMutex, ReentrantGuard, ReentrantMutex, Retry, RwLock,
    Semaphore, Support, Waiter, WorkError, WriteGuard, clock, fence, memory, multi,
};
pub use quorum::{QuorumBackend, QuorumConfig, QuorumLocks};
pub use store::dialect::Dialect;
pub use tls::Tls;
#[doc(hidden)]
pub use wait::machine;

/// A client of one Redis deployment. Dereferences to [`Client`], which makes the handles.
///
/// ```no_run
/// # async fn doc() -> Result<(), lock_redis::Error> {
/// use std::time::Duration;
/// use lock_redis::RedisLocks;
///
/// let locks = RedisLocks::connect("redis://127.0.0.1/").await?;
/// if let Some(guard) = locks.mutex("orders/42").try_lock_for(Duration::from_secs(2)).await? {
///     guard.release().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct RedisLocks(Client<RedisBackend>);

impl RedisLocks {
    /// Connects with the default options to the servers that this URL names; [`RedisConfig::url`] tells its forms.
    ///
    /// Tries once. A refused connection is told at once; a server that does not answer, after an operation timeout, but 1 s at least and
    /// 5 s at most, for each of up to three steps (six behind sentinels, more in a cluster). Call again while [`Error::retry`] is
    /// [`Retry::Later`]: the README has the loop.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the server cannot be reached, [`ErrorKind::Denied`] if it refuses the credentials,
    /// [`ErrorKind::InvalidArgument`] for a wrong URL, [`ErrorKind::Unsupported`] if the URL is of a cluster and the server of none, or
    /// if it wants TLS and the feature `tls` is off.
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::connect_with(RedisConfig::new(url)).await
    }

    /// Connects with these options. The client lives on the tokio runtime on which it was connected.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] also if an option is out of its range; the others of [`connect`](RedisLocks::connect).
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call.
    pub async fn connect_with(config: RedisConfig) -> Result<Self, Error> {
        // Boxed: it is large, and would be a part of the caller's future.
        let backend = Box::pin(connect::connect(&config)).await?;
        Client::new(backend, config.client).map(Self)
    }
}

impl Deref for RedisLocks {
    type Target = Client<RedisBackend>;

    fn deref(&self) -> &Client<RedisBackend> {
        &self.0
    }
}

impl From<&RedisLocks> for Locks {
    fn from(RedisLocks(client): &RedisLocks) -> Self {
        Self::new(client)
            .with_reentrant(client)
            .with_rwlock(client)
            .with_semaphore(client)
            .with_record(client)
            .with_adopt(client)
    }
}

impl From<RedisLocks> for Locks {
    fn from(locks: RedisLocks) -> Self {
        Self::from(&locks)
    }
}
