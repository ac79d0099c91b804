//! The queue of one lock in memory.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::BootInstant;
use crate::driver::IdMap;
use crate::driver::{Grant, Kind};
use crate::owner::{GrantId, Owner};

/// A request in the queue.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) id: GrantId,
    pub(super) client: u64,
    pub(super) kind: Kind,
    pub(super) owner: Owner,
    pub(super) ttl: Duration,
    pub(super) since: BootInstant,
    pub(super) tell: oneshot::Sender<Grant>,
}

/// Requests in the order of their arrival. One that leaves costs as little wherever it stands.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    by_place: BTreeMap<u64, QueuedRequest>,
    places: IdMap<GrantId, u64>,
    /// The places of each owner's requests for a reentrant lock.
    by_owner: IdMap<GrantId, BTreeSet<u64>>,
    last_place: u64,
}

impl RequestQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    pub(super) fn front(&self) -> Option<&QueuedRequest> {
        self.by_place.first_key_value().map(|(_, request)| request)
    }

    /// All of them, first come first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueuedRequest> {
        self.by_place.values()
    }

    /// Puts a request at the end.
    pub(super) fn push(&mut self, request: QueuedRequest) {
        self.last_place += 1;
        self.places.insert(request.id, self.last_place);
        if request.kind == Kind::Reentrant {
            self.by_owner.entry(request.owner.id()).or_default().insert(self.last_place);
        }
        self.by_place.insert(self.last_place, request);
    }

    /// Takes the first request out.
    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        let (place, _) = self.by_place.first_key_value()?;
        self.take(*place)
    }

    /// Takes this owner's first request for a reentrant lock out, wherever it stands.
    pub(super) fn pop_of(&mut self, owner: GrantId) -> Option<QueuedRequest> {
        let place = self.by_owner.get(&owner)?.first()?;
        self.take(*place)
    }

    /// Takes a request out, if it is there.
    pub(super) fn remove(&mut self, id: GrantId) {
        if let Some(place) = self.places.get(&id) {
            self.take(*place);
        }
    }

    fn take(&mut self, place: u64) -> Option<QueuedRequest> {
        let request = self.by_place.remove(&place)?;
        self.places.remove(&request.id);
        if let Entry::Occupied(mut places) = self.by_owner.entry(request.owner.id()) {
            places.get_mut().remove(&place);
            if places.get().is_empty() {
                places.remove();
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_s_requests_are_taken_wherever_they_stand_and_leave_nothing() {
        let (shared, other) = (Owner::new(), Owner::new());
        let mut queue = RequestQueue::default();
        for (number, owner) in [(1, &other), (2, &shared), (3, &other), (4, &shared), (5, &shared)] {
            let (id, kind, owner) = (GrantId::from_bytes([number; 16]), Kind::Reentrant, owner.clone());
            let (since, tell) = (BootInstant::from_origin(Duration::ZERO), oneshot::channel().0);
            queue.push(QueuedRequest { id, client: 1, kind, owner, ttl: Duration::ZERO, since, tell });
        }
        queue.remove(GrantId::from_bytes([4; 16]));
        let mut taken = Vec::new();
        while let Some(request) = queue.pop_of(shared.id()).or_else(|| queue.pop()) {
            taken.push(request.id.as_bytes()[0]);
        }
        assert_eq!(taken, [2, 5, 1, 3]);
        assert!(queue.is_empty() && queue.places.is_empty() && queue.by_owner.is_empty());
    }
}
