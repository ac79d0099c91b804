//! The releases that one server of a quorum has not confirmed, by attempt: what this client may have there, and no longer wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::GrantId;
use lock_core::clock::BootInstant;

use super::client::send_queue::ScriptRequest;

/// The most releases that are pending for one server. Of more than that the leases have to end by themselves.
pub(super) const MOST_PENDING: usize = 65_536;

/// Frees whatever the round; the largest number that a script keeps exactly.
pub(super) const EVERY_ROUND: u64 = (1 << 53) - 1;

/// The release of an attempt that a server has not confirmed.
#[derive(Debug, Clone)]
pub(super) struct PendingRelease {
    pub(super) id: GrantId,
    /// The last round that it frees. It frees whatever those before have left, too.
    pub(super) last_round: u64,
    /// The instant since when the attempt has been sending; `None` if it is of another client, which may have reached servers that this
    /// one has not.
    pub(super) since: Option<BootInstant>,
    /// The instant at which the servers have forgotten it by themselves.
    pub(super) over_at: BootInstant,
    pub(super) request: Arc<ScriptRequest>,
}

/// A release that stays here until it is confirmed.
#[derive(Debug)]
struct PendingEntry {
    pending_release: PendingRelease,
    /// Whether it is on its way.
    is_sent: bool,
}

/// The releases that are pending for one server.
///
/// At most one for each attempt that was under way, or held, when the server stopped answering: without a connection
/// nothing is sent, and so nothing is pending. Each is forgotten when its lease is over; never more than [`MOST_PENDING`].
#[derive(Debug, Default)]
pub(super) struct PendingReleases(Mutex<HashMap<GrantId, PendingEntry>>);

impl PendingReleases {
    /// Adds a release if there is room for it; returns whether it is pending now. One that frees later rounds too stays in its place.
    pub(super) fn add(&self, pending_release: PendingRelease, is_sent: bool) -> bool {
        let mut entries = self.entries();
        match entries.get(&pending_release.id) {
            Some(entry) if entry.pending_release.last_round > pending_release.last_round => return false,
            None if entries.len() >= MOST_PENDING => return false,
            _ => _ = entries.insert(pending_release.id, PendingEntry { pending_release, is_sent }),
        }
        true
    }

    /// Takes note that everything of an attempt up to this round is freed.
    pub(super) fn settle(&self, id: GrantId, last_round: u64) {
        let mut entries = self.entries();
        if entries.get(&id).is_some_and(|entry| entry.pending_release.last_round <= last_round) {
            entries.remove(&id);
        }
    }

    /// Returns the pending release of an attempt.
    pub(super) fn of(&self, id: GrantId) -> Option<PendingRelease> {
        self.entries().get(&id).map(|entry| entry.pending_release.clone())
    }

    /// Whether no release is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Forgets what is over at this instant.
    pub(super) fn forget_over(&self, now: BootInstant) {
        self.entries().retain(|_, entry| now < entry.pending_release.over_at);
    }

    /// Sends so many of those at most that are not on their way, which they are from now on.
    pub(super) fn send<T>(&self, most: usize, send: impl Fn(PendingRelease) -> T) -> Vec<T> {
        let mut entries = self.entries();
        let to_send = entries.values_mut().filter(|entry| !entry.is_sent).take(most);
        let sent = to_send.map(|entry| {
            entry.is_sent = true;
            send(entry.pending_release.clone())
        });
        sent.collect()
    }

    /// Returns the number of pending releases.
    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<GrantId, PendingEntry>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
