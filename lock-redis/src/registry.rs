//! The attempts of this client that wait, and those that gave up: what it may have at the server, by attempt.

use std::collections::HashMap;
use std::sync::Arc;

use lock_core::GrantId;

use crate::store::keys::Keys;

/// The number of remembered attempts that gave up.
const MOST_ABANDONED: usize = 10_000;

/// The attempts of one client that have, or may have, a place in a queue at the server.
///
/// `W` is a waiter, which is told of its grant.
#[derive(Debug)]
pub(crate) struct Registry<W> {
    waiting: HashMap<GrantId, Arc<W>>,
    /// Attempts that gave up: none of them ever becomes a guard, so a grant to one is given back at once. Kept until their
    /// cancellation is confirmed or given up.
    abandoned: HashMap<GrantId, Arc<Keys>>,
    /// Grants to such attempts.
    unwanted: Vec<(GrantId, Arc<Keys>)>,
}

impl<W> Default for Registry<W> {
    fn default() -> Self {
        Self { waiting: HashMap::new(), abandoned: HashMap::new(), unwanted: Vec::new() }
    }
}

impl<W> Registry<W> {
    /// Adds an attempt that waits.
    pub(crate) fn register(&mut self, nonce: GrantId, waiter: Arc<W>) {
        self.waiting.insert(nonce, waiter);
    }

    /// Removes an attempt that waits no longer; one that gave up is remembered with its lock's keys.
    pub(crate) fn deregister(&mut self, nonce: GrantId, gave_up: Option<Arc<Keys>>) {
        self.waiting.remove(&nonce);
        if let Some(keys) = gave_up {
            if self.abandoned.len() >= MOST_ABANDONED {
                // The server's own bounds remain: a claim time for each.
                self.abandoned.clear();
            }
            self.abandoned.insert(nonce, keys);
        }
    }

    /// The waiter of an attempt that waits.
    pub(crate) fn waiter(&self, nonce: GrantId) -> Option<&Arc<W>> {
        self.waiting.get(&nonce)
    }

    /// Takes note of a grant to an attempt that does not wait; returns whether it is to be given back.
    pub(crate) fn is_unwanted(&mut self, nonce: GrantId) -> bool {
        let keys = self.abandoned.remove(&nonce);
        let unwanted = keys.is_some();
        self.unwanted.extend(keys.map(|keys| (nonce, keys)));
        unwanted
    }

    /// Takes the grants that nobody wants any more, to be given back.
    pub(crate) fn take_unwanted(&mut self) -> Vec<(GrantId, Arc<Keys>)> {
        std::mem::take(&mut self.unwanted)
    }

    /// Forgets an attempt that gave up: nothing of it can be granted any more, or nobody cares any more.
    pub(crate) fn forget(&mut self, nonce: GrantId) {
        self.abandoned.remove(&nonce);
    }

    /// Whether nothing is registered, and nothing is remembered.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.abandoned.is_empty()
    }
}
