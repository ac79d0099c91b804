//! The queue of one lock in memory.

use std::collections::BTreeMap;
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
        self.by_place.insert(self.last_place, request);
    }

    pub(super) fn pop(&mut self) -> Option<QueuedRequest> {
        let (_, request) = self.by_place.pop_first()?;
        self.places.remove(&request.id);
        Some(request)
    }

    /// Takes a request out, if it is there.
    pub(super) fn remove(&mut self, id: GrantId) {
        if let Some(place) = self.places.remove(&id) {
            self.by_place.remove(&place);
        }
    }
}
