//! Distributed locks on ZooKeeper.
//!
//! ```no_run
//! # async fn doc() -> Result<(), lock_zk::Error> {
//! use lock_zk::ZkLocks;
//!
//! let locks = ZkLocks::connect("zk://127.0.0.1:2181").await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! // … work, under `guard.while_held(…)` or with `guard.fencing_token()` …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Where it fails
//! A [fencing token](Fenced) that the resource checks protects it in the second and the third case; in the first, tokens may go back too.
//! - Acknowledged writes that the servers lose: `forceSync=no` and a loss of power, or a data directory that is wiped.
//! - A leader that is paused and loses the holder's server in the same moment may end a session earlier than is believed, by up to the time
//!   between two requests of the client.
//! - A holder that is paused between its look at [`is_held`](Lease::is_held) and its write.
//! - A dead holder, or a dead waiter, holds the others up for the session's timeout and one tick, whatever the TTL of its lease.
//! - A wait that is kept without being polled holds everybody up, for as long as its client lives.
//!
//! [`Client::guarantees`] says what holds as it is configured, and [`Client::require`] refuses what does not suffice. The README tells the
//! algorithm, the nodes, the session's policy, the guarantees and more of where they fail.

#![forbid(unsafe_code)]

mod access;
mod acquire;
mod backend;
mod client;
mod config;
mod connect;
mod downgrade;
mod error;
mod guarantees;
#[cfg(test)]
mod inputs;
mod inspect;
mod kinds;
mod leave;
mod permits;
mod records;
mod registry;
mod release;
mod renew;
mod session;
mod several;
mod store;
mod tls;
mod url;
mod wait;

use std::ops::Deref;

use client::ClientCrate;

pub use access::Access;
pub use backend::ZkBackend;
pub use config::ZkConfig;
pub use lock_core::{
    Client, ClientOptions, DetachError, DetachedMutex, DowngradeError, Ended, Ending, Error, ErrorKind, ExpiresWithin,
    Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex,
    FencedRwLock, FencedWriteGuard, FencingToken, GrantId, Guarantee, Guarantees, Holder, Inspection, Lease,
    LeaseOptions, LeaveError, LockName, Locks, LossReason, Lost, MemoryLocks, Mutex, MutexGuard, Owner, Permit,
    PermitToken, Phase, ReadGuard, Record, RecordedGuard, RecordedMutex, ReentrantGuard, ReentrantMutex, Retry, RwLock,
    Semaphore, Support, Waiter, WorkError, WriteGuard, clock, fence, memory, multi,
};
pub use session::SessionState;
pub use store::node::Dialect;
pub use tls::Tls;

/// The decisions that need no I/O, for the models of `tests/models`. Outside of semantic versioning: anything here may change in
/// any version.
#[doc(hidden)]
pub mod machine {
    pub use crate::permits::taking::{PermitNode, Taking, TakingAction, TakingEvent, is_within};
    pub use crate::registry::successor::Successor;
    pub use crate::session::lease::SessionLease;
    pub use crate::store::node::Role;
    pub use crate::wait::contention::{Action, Contention, Event, ListedQueue, Member, QueuePosition, Request, Way};
}

/// A client of one ZooKeeper ensemble. Dereferences to [`Client`], which makes the handles.
///
/// When it is dropped, with every handle and guard, its session is closed, and with it goes whatever it still held. To wait for
/// that, or not to depend on every guard, [close the session](ZkLocks::close_session).
///
/// # Examples
/// ```no_run
/// # async fn doc() -> Result<(), lock_zk::Error> {
/// use std::time::Duration;
///
/// use lock_zk::{ZkConfig, ZkLocks};
///
/// let config = ZkConfig::new("zk://zoo1:2181,zoo2:2181,zoo3:2181").with_session_timeout(Duration::from_secs(6));
/// let locks = ZkLocks::connect_with(config).await?;
/// if let Some(guard) = locks.mutex("orders/42").try_lock_for(Duration::from_secs(5)).await? {
///     // … the work …
///     guard.release().await?;
/// }
/// locks.close_session().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct ZkLocks(Client<ZkBackend>);

impl ZkLocks {
    /// Opens a session with the default options at the servers that this URL names:
    /// `zk://host[:port][,host[:port]…][/chroot]`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no session that can be kept is open within the session's timeout (over TLS also if certificates are not
    /// accepted, which the client crate does not tell apart); it comes up to 0.5 s later, as the first eight servers are looked
    /// at for what is wrong with each. [`ErrorKind::InvalidArgument`] for a wrong URL, a chroot that does not exist, or servers that
    /// grant a session of less than five quarters of a tick; [`ErrorKind::Denied`] if the credentials are refused or the chroot may not
    /// be read.
    ///
    /// # Cancel safety
    /// At most a session without nodes is left of a dropped call, until its timeout.
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::connect_with(ZkConfig::new(url)).await
    }

    /// Opens a session with these options. The client lives on the tokio runtime on which it was connected.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] also if an option is out of its range; the others of [`connect`](ZkLocks::connect).
    ///
    /// # Cancel safety
    /// At most a session without nodes is left of a dropped call, until its timeout.
    pub async fn connect_with(config: ZkConfig) -> Result<Self, Error> {
        Self::over(config, ClientCrate::ZookeeperClient).await
    }

    /// Opens a session with these options by the client crate `zookeeper-async`, where that is what a program has to use.
    ///
    /// The locks promise the same, but a server that hangs always costs the session, a semaphore and a downgrade take more
    /// requests, and there are neither records nor SASL nor TLS; the README has the figures.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for credentials by SASL, TLS and an unfair mutex; [`ErrorKind::InvalidArgument`] if an option is
    /// out of its range, a session timeout below 2 s included; the others of [`connect`](ZkLocks::connect).
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call.
    #[cfg(feature = "zookeeper-async")]
    pub async fn connect_with_zookeeper_async(config: ZkConfig) -> Result<Self, Error> {
        Self::over(config, ClientCrate::ZookeeperAsync).await
    }

    async fn over(config: ZkConfig, by: ClientCrate) -> Result<Self, Error> {
        // Boxed: it is large, and would be a part of the caller's future.
        let backend = Box::pin(connect::connect(&config, by)).await?;
        Client::new(backend, config.client).map(Self)
    }

    /// Closes the client and its session: new locks are refused, releases on their way are waited for, and whatever is still
    /// held, also by a guard that was forgotten, is free at once instead of after the session's timeout. Guards are told
    /// [`LossReason::SessionExpired`]. [`close`](Client::close) alone leaves the session to the guards that are left.
    ///
    /// # Errors
    /// [`ErrorKind::Indeterminate`] if the servers did not confirm it within the operation timeout: then the session ends with
    /// its timeout at the latest.
    ///
    /// # Cancel safety
    /// A future that was dropped while it waited for releases leaves the session open.
    pub async fn close_session(&self) -> Result<(), Error> {
        // What it could not wait for goes with the session.
        let _ = self.0.close().await;
        let backend = self.0.backend();
        backend.sessions.close(backend.op_timeout).await
    }

    /// Returns the state of the client's session at this instant.
    #[must_use]
    pub fn session_state(&self) -> SessionState {
        self.0.backend().sessions.state()
    }
}

impl Deref for ZkLocks {
    type Target = Client<ZkBackend>;

    fn deref(&self) -> &Client<ZkBackend> {
        &self.0
    }
}

impl From<&ZkLocks> for Locks {
    fn from(ZkLocks(client): &ZkLocks) -> Self {
        Self::new(client).with_reentrant(client).with_rwlock(client).with_semaphore(client).with_record(client)
    }
}

impl From<ZkLocks> for Locks {
    fn from(locks: ZkLocks) -> Self {
        Self::from(&locks)
    }
}
