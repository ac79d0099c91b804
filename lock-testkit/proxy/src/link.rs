//! The state of a link.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::active::Active;
use super::frames::Protocol;

/// The state that the connections of a link share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: String,
    pub(super) protocol: Protocol,
    faults: Mutex<Vec<Arc<Active>>>,
    /// Told of every fault that is injected or healed.
    changed: watch::Sender<()>,
    requests: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
}

impl Link {
    pub(super) fn new(server: String, protocol: Protocol) -> Self {
        Self {
            server,
            protocol,
            faults: Mutex::default(),
            changed: watch::Sender::new(()),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
        }
    }

    /// The faults that are injected now.
    pub(super) fn faults(&self) -> Vec<Arc<Active>> {
        self.locked().clone()
    }

    /// Wakes whenever that changes.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn change(&self, how: impl FnOnce(&mut Vec<Arc<Active>>)) {
        how(&mut self.locked());
        self.changed.send_replace(());
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Active>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The connections so far.
    pub(super) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The connections that are open.
    pub(super) fn open_connections(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a new connection, which is open until [`count_end`](Link::count_end), and returns its number.
    ///
    /// A fault that ends the connections that it finds does not find it if it was injected before, and finds it if it is
    /// injected by somebody who has seen it counted.
    ///
    /// # Errors
    /// The fault that refuses connections from its injection on.
    pub(super) fn count_connection(&self) -> Result<u64, Arc<Active>> {
        let faults = self.locked();
        if let Some(refusal) = faults.iter().find(|fault| fault.refuses()) {
            return Err(refusal.clone());
        }
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        for fault in faults.iter() {
            fault.strike_if_cut(number);
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    pub(super) fn count_end(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
