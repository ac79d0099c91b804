//! Redlock: one mutex over several independent servers, held while a majority of them says so.
//!
//! This is a second backend in the crate, in the parts that the first one has: a file has the role here that the file of its name has for
//! one server. `ballot/` is only here: it counts the votes of the servers, and notes at which of them an attempt may have left an
//! entry. In `wait/` the first waiter of a client asks for all of them. It is told of releases by the subscription connections of
//! `../client/push.rs`, one to each server.
//!
//! The README and `docs/decisions/` tell what a quorum promises and what it does not.

mod acquire;
mod adopt;
mod backend;
mod ballot;
mod client;
mod config;
mod connect;
mod error;
mod inspect;
mod kinds;
mod leave;
mod registry;
mod release;
mod renew;
mod store;
mod wait;

use std::ops::Deref;

use lock_core::{Client, Error, Guarantees, Locks, Support};

pub use backend::QuorumBackend;
pub use config::QuorumConfig;

/// The backend's name in errors and metrics.
const NAME: &str = "redis-quorum";

/// Promises of a quorum that does, or does not, refuse servers that started only lately.
fn guarantees(young_are_refused: bool) -> Guarantees {
    let mut guarantees = Guarantees::none();
    guarantees.exclusion_across_restart = Support::Unless(if young_are_refused {
        "a client uses a TTL above `longest_ttl`, or servers' clocks step forward"
    } else {
        "as many servers as two majorities must share come back without their data within one TTL"
    });
    guarantees.inspect = Support::Unless("somebody waits: waiters are not shown");
    guarantees.force_release = Support::Yes;
    guarantees.adoption = Support::Yes;
    guarantees.leave = Support::Yes;
    guarantees.foreign_clients = Support::Unless("they do not ask a majority of the same servers");
    guarantees
}

/// A client of several independent Redis servers, the mutexes of which are held by majority (the Redlock algorithm).
/// Dereferences to [`Client`], which makes the handles.
///
/// There are no fencing tokens here and no strict order of waiters: one server with a persistent store, or ZooKeeper, is the
/// better choice wherever its outage can be borne. The README tells when a quorum is worth it.
///
/// ```no_run
/// # async fn doc() -> Result<(), lock_redis::Error> {
/// use lock_redis::QuorumLocks;
///
/// let locks = QuorumLocks::connect(["redis://a.example/", "redis://b.example/", "redis://c.example/"]).await?;
/// let guard = locks.mutex("orders/42").lock().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "redlock")]
pub struct QuorumLocks(Client<QuorumBackend>);

impl QuorumLocks {
    /// Connects to these servers, at least three, with the default options. Succeeds once a majority answers; the
    /// others are dialled in the background.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) for a wrong URL, fewer than three servers,
    ///   or one that is named twice;
    /// - [`ErrorKind::Unavailable`](lock_core::ErrorKind::Unavailable) if no majority answers within the operation
    ///   timeout (at least 1 s), or has been up for long enough ([`QuorumConfig::longest_ttl`]);
    /// - [`ErrorKind::Denied`](lock_core::ErrorKind::Denied) if that is because they refuse the credentials;
    /// - [`ErrorKind::Unsupported`](lock_core::ErrorKind::Unsupported) if a URL wants TLS and the feature `tls` is off.
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call.
    pub async fn connect<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        Self::connect_with(QuorumConfig::new(urls)).await
    }

    /// Connects with these options. The client lives on the tokio runtime on which it was connected.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](lock_core::ErrorKind::InvalidArgument) also if an option is out of its range; the others
    /// of [`connect`](QuorumLocks::connect).
    ///
    /// # Cancel safety
    /// Nothing is left of a dropped call.
    pub async fn connect_with(config: QuorumConfig) -> Result<Self, Error> {
        // Boxed: it is large, and would be a part of the caller's future.
        let backend = Box::pin(connect::connect(&config)).await?;
        Client::new(backend, config.client).map(Self)
    }
}

impl Deref for QuorumLocks {
    type Target = Client<QuorumBackend>;

    fn deref(&self) -> &Client<QuorumBackend> {
        &self.0
    }
}

impl From<&QuorumLocks> for Locks {
    fn from(QuorumLocks(client): &QuorumLocks) -> Self {
        Self::new(client).with_adopt(client)
    }
}

impl From<QuorumLocks> for Locks {
    fn from(locks: QuorumLocks) -> Self {
        Self::from(&locks)
    }
}
