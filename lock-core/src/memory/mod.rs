//! The in-memory backend: all four kinds in one process, without a server.
//!
//! It is the executable specification of every backend, the embedded default, and a test double: a [`MemoryStore`] can
//! run on a [`VirtualClock`](crate::clock::VirtualClock), lose a lock, become unreachable, and delay its answers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
//! use std::time::Duration;
//! use lock_core::{LossReason, clock::VirtualClock, memory::MemoryStore};
//!
//! let store = MemoryStore::new();
//! let locks = store.connect();
//! let guard = locks.mutex("report").lock().await?;
//! store.lose("report"); // as if the server had lost its memory
//! assert_eq!(guard.lost().await, LossReason::Taken);
//! assert!(!guard.is_held());
//!
//! let clock = VirtualClock::new();
//! let locks = MemoryStore::with_clock(clock.clone()).connect();
//! let guard = locks.mutex("report").lock().await?;
//! clock.advance(Duration::from_secs(11)); // nobody renewed in these 11 s
//! assert!(!guard.is_held());
//! # Ok(()) }
//! ```
//!
//! Waiters are served in the order in which they came, readers in front together, and a released lock is handed over
//! directly: the next holder owns it when it is woken. State lives as long as the store does.
//!
//! A store keeps one entry for each client, for each record until its retention is over, and for each lock that is held or waited for
//! ([`MemoryStore::used`]), with each holder and each waiter. A
//! waiter goes with its call. A grant that nobody releases, because its runtime has ended, is found expired when its name is used
//! next.

mod backend;
mod holders;
mod queue;
mod records;
mod rules;
mod server;
mod store;

use std::ops::Deref;

pub use backend::MemoryBackend;
pub use store::MemoryStore;

use crate::client::Client;
use crate::erased::Locks;
use crate::options::ClientOptions;

/// A client of a [`MemoryStore`]: locks in memory. Dereferences to [`Client`], which makes the handles.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// use lock_core::MemoryLocks;
///
/// let locks = MemoryLocks::new();
/// let guard = locks.mutex("orders/42").lock().await?;
/// guard.release().await
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryLocks(Client<MemoryBackend>);

impl MemoryLocks {
    /// A client of a store of its own: locks between the tasks of this process.
    #[must_use]
    pub fn new() -> Self {
        MemoryStore::new().connect()
    }
}

impl Default for MemoryLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for MemoryLocks {
    type Target = Client<MemoryBackend>;

    fn deref(&self) -> &Client<MemoryBackend> {
        &self.0
    }
}

impl From<&MemoryLocks> for Locks {
    fn from(MemoryLocks(client): &MemoryLocks) -> Self {
        Self::new(client)
            .with_reentrant(client)
            .with_rwlock(client)
            .with_semaphore(client)
            .with_record(client)
            .with_adopt(client)
    }
}

impl From<MemoryLocks> for Locks {
    fn from(locks: MemoryLocks) -> Self {
        Self::from(&locks)
    }
}

/// The settings of a client of a [`MemoryStore`].
///
/// # Examples
/// ```
/// # fn main() -> Result<(), lock_core::Error> {
/// use lock_core::ClientOptions;
/// use lock_core::memory::{MemoryConfig, MemoryStore};
///
/// let config = MemoryConfig::default().with_namespace("billing").with_client(ClientOptions::default().with_label("api"));
/// let locks = MemoryStore::new().connect_with(config)?;
/// assert_eq!(locks.owner().label(), Some("api"));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Clients of different namespaces do not see each other's locks.
    pub namespace: String,
    /// The options that all locks of the client have in common.
    pub client: ClientOptions,
}

impl MemoryConfig {
    /// Sets another namespace.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets other options for its locks.
    #[must_use]
    pub fn with_client(mut self, client: ClientOptions) -> Self {
        self.client = client;
        self
    }
}
