//! The store that clients share: the user's side of the memory backend's server.

use std::sync::Arc;
use std::time::Duration;

use super::backend::MemoryBackend;
use super::server::Server;
use super::{MemoryConfig, MemoryLocks};
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::name::LockName;

/// The store that clients share. A clone is the same store.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// use lock_core::memory::MemoryStore;
///
/// let store = MemoryStore::new();
/// let (one, two) = (store.connect(), store.connect()); // as two processes at one server
/// let guard = one.mutex("report").lock().await?;
/// assert!(two.mutex("report").try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryStore(Arc<Server>);

impl MemoryStore {
    /// An empty store on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store on this clock; its clients' leases run on the same one.
    #[must_use]
    pub fn with_clock(clock: impl Clock) -> Self {
        Self(Arc::new(Server::new(Arc::new(clock))))
    }

    /// A client with the default options.
    #[must_use]
    pub fn connect(&self) -> MemoryLocks {
        let options = crate::ClientOptions::default();
        MemoryLocks(Client::with_checked(self.backend(String::new(), options.op_timeout), options))
    }

    /// A client with these options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if an option is out of its range.
    pub fn connect_with(&self, config: MemoryConfig) -> Result<MemoryLocks, Error> {
        Client::new(self.backend(config.namespace, config.client.op_timeout), config.client).map(MemoryLocks)
    }

    /// Takes every lock of this name away from its holders, of every kind and namespace, and tells them; says how many
    /// grants that were.
    pub fn lose(&self, name: impl Into<LockName>) -> usize {
        self.0.lose(&name.into())
    }

    /// While `false`, every request fails with [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable).
    pub fn set_reachable(&self, reachable: bool) {
        self.0.set_reachable(reachable);
    }

    /// Delays every request by a time between these two, in a sequence that `seed` decides; on the store's clock. One that
    /// is delayed beyond its operation timeout is never carried out, and fails with [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate).
    pub fn set_delay(&self, least: Duration, most: Duration, seed: u64) {
        self.0.set_delay(least, most, seed);
    }

    /// Returns the number of locks with a holder or a waiter.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used()
    }

    pub(crate) fn backend(&self, namespace: String, op_timeout: Duration) -> MemoryBackend {
        MemoryBackend::new(self.0.clone(), self.0.next_client(), namespace, op_timeout)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}
