//! The releases that are owed to one server of a quorum, by attempt: what this client may have there, and no longer wants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::GrantId;
use lock_core::clock::BootInstant;

use super::client::send_queue::ScriptRequest;

/// The number of releases that are owed to one server. Of more than that the leases have to end by themselves.
pub(super) const MOST_OWED: usize = 65_536;

/// Frees whatever the round; the largest number that a script keeps exactly.
pub(super) const EVERY_ROUND: u64 = (1 << 53) - 1;

/// The release that an attempt owes a server.
#[derive(Debug, Clone)]
pub(super) struct OwedRelease {
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

/// A release that is owed until it is confirmed.
#[derive(Debug)]
struct Debt {
    owed_release: OwedRelease,
    /// Whether it is on its way.
    is_sent: bool,
}

/// The releases that are owed to one server.
///
/// At most one for each attempt that was under way, or held, when the server stopped answering: without a connection
/// nothing is sent, and so nothing is owed. Each is forgotten when its lease is over; never more than [`MOST_OWED`].
#[derive(Debug, Default)]
pub(super) struct OwedReleases(Mutex<HashMap<GrantId, Debt>>);

impl OwedReleases {
    /// Adds a release if there is room for it; returns whether it is owed now. One that frees later rounds too stays in its place.
    pub(super) fn add(&self, owed_release: OwedRelease, is_sent: bool) -> bool {
        let mut debts = self.debts();
        match debts.get(&owed_release.id) {
            Some(debt) if debt.owed_release.last_round > owed_release.last_round => return false,
            None if debts.len() >= MOST_OWED => return false,
            _ => _ = debts.insert(owed_release.id, Debt { owed_release, is_sent }),
        }
        true
    }

    /// Takes note that everything of an attempt up to this round is freed.
    pub(super) fn settle(&self, id: GrantId, last_round: u64) {
        let mut debts = self.debts();
        if debts.get(&id).is_some_and(|debt| debt.owed_release.last_round <= last_round) {
            debts.remove(&id);
        }
    }

    /// The release that is owed of an attempt.
    pub(super) fn of(&self, id: GrantId) -> Option<OwedRelease> {
        self.debts().get(&id).map(|debt| debt.owed_release.clone())
    }

    /// Whether nothing is owed.
    pub(super) fn is_empty(&self) -> bool {
        self.debts().is_empty()
    }

    /// Forgets what is over at this instant.
    pub(super) fn forget_over(&self, now: BootInstant) {
        self.debts().retain(|_, debt| now < debt.owed_release.over_at);
    }

    /// Sends so many of those at most that are not on their way, which they are from now on.
    pub(super) fn send<T>(&self, most: usize, send: impl Fn(OwedRelease) -> T) -> Vec<T> {
        let mut debts = self.debts();
        let to_send = debts.values_mut().filter(|debt| !debt.is_sent).take(most);
        let sent = to_send.map(|debt| {
            debt.is_sent = true;
            send(debt.owed_release.clone())
        });
        sent.collect()
    }

    /// The number of releases that are owed.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.debts().len()
    }

    fn debts(&self) -> MutexGuard<'_, HashMap<GrantId, Debt>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
