//! The requests of this client, by attempt, of which it does not know whether a server has carried them out: releases that one server has
//! not confirmed, which stand for what the client may have there and no longer wants, and acquisitions of what it has.

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

/// The grants of which servers may still carry out an acquisition: they have not answered the round that was granted, or an earlier one
/// may be on its way over another connection.
///
/// At most one for each grant. It goes with the last answer, or with the end of the grant.
#[derive(Debug, Default)]
pub(super) struct UnansweredGrants(Mutex<HashMap<GrantId, Vec<Unanswered>>>);

/// A server that may still carry out an acquisition.
#[derive(Debug)]
struct Unanswered {
    server: usize,
    /// The instant after which nothing of it is sent.
    over_at: BootInstant,
}

impl UnansweredGrants {
    /// Adds a grant, with the servers that may still carry out what is sent until an instant.
    pub(super) fn add(&self, id: GrantId, servers: impl Iterator<Item = usize>, over_at: BootInstant) {
        let unanswered: Vec<_> = servers.map(|server| Unanswered { server, over_at }).collect();
        if !unanswered.is_empty() {
            self.grants().insert(id, unanswered);
        }
    }

    /// Takes note of a server's answer, or of its lack of one: then nothing is sent any more after `over_at`.
    pub(super) fn note(&self, id: GrantId, server: usize, over_at: Option<BootInstant>) {
        let mut grants = self.grants();
        let Some(unanswered) = grants.get_mut(&id) else { return };
        match (over_at, unanswered.iter_mut().find(|its| its.server == server)) {
            (Some(over_at), Some(its)) => its.over_at = over_at,
            _ => unanswered.retain(|its| its.server != server),
        }
        if unanswered.is_empty() {
            grants.remove(&id);
        }
    }

    /// Forgets a grant that has ended.
    pub(super) fn forget(&self, id: GrantId) {
        self.grants().remove(&id);
    }

    /// Whether nothing of this grant can be carried out any more. `is_over` tells whether a server has nothing left of what was sent to
    /// it until an instant.
    pub(super) fn is_answered(&self, id: GrantId, is_over: impl Fn(usize, BootInstant) -> bool) -> bool {
        let grants = self.grants();
        let unanswered = grants.get(&id).into_iter().flatten();
        unanswered.into_iter().all(|its| is_over(its.server, its.over_at))
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<GrantId, Vec<Unanswered>>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_grant_is_answered_when_every_server_has_answered_or_has_nothing_left() {
        let (grants, id) = (UnansweredGrants::default(), GrantId::random().unwrap());
        let is_answered =
            |over: &[(usize, BootInstant)]| grants.is_answered(id, |server, until| over.contains(&(server, until)));
        assert!(is_answered(&[]), "nothing is known of it");
        grants.add(id, [1, 3].into_iter(), at(5));
        assert!(!is_answered(&[(1, at(5))]));
        assert!(is_answered(&[(1, at(5)), (3, at(5))]), "the answer of one of them was counted with the vote");
        grants.note(id, 1, None);
        grants.note(id, 3, Some(at(7)));
        assert!(!is_answered(&[(3, at(5))]) && is_answered(&[(3, at(7))]));
        grants.note(id, 3, None);
        assert!(is_answered(&[]));
    }

    #[test]
    fn nothing_is_kept_of_a_grant_that_is_answered_or_has_ended() {
        let grants = UnansweredGrants::default();
        let [answered, ended, whole] = [(); 3].map(|()| GrantId::random().unwrap());
        grants.add(answered, [0, 2].into_iter(), at(0));
        grants.add(ended, [4].into_iter(), at(0));
        grants.add(whole, [].into_iter(), at(0));
        [0, 2].into_iter().for_each(|server| grants.note(answered, server, None));
        grants.forget(ended);
        grants.note(ended, 4, Some(at(1)));
        assert!(grants.grants().is_empty());
    }
}
