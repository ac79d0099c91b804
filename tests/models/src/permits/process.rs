//! The attempts of one process: which places they have, as far as they have noted them, and who waits for which without asking the servers.

use lock_zk::machine::{Successor, TakingEvent};

use super::Mutant;
use super::server::{AttemptId, Place, Reply};

/// An attempt, and the place that it has.
pub(super) type Waiter = (AttemptId, u8);

/// The places of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Process {
    /// Each place that is noted, and the attempt that came last to wait for it.
    noted: Vec<(Place, Option<AttemptId>)>,
    /// The place that was noted last, while it is.
    last: Option<Place>,
    /// Places that are noted no longer, and the attempt that is told that it is first now.
    gone: Vec<(Place, Option<AttemptId>)>,
    /// The successor of the permits, as `lock-zk` decides it.
    successor: Successor<Waiter>,
    /// The waiters to which permits may be handed over, and those to which they are being.
    open: Vec<Waiter>,
    taken: Vec<AttemptId>,
    /// The outcomes that successors are to be told.
    received: Vec<Reply>,
}

impl Process {
    /// Whether the place that comes next may be right behind one of this process.
    pub(super) fn knows_last(&self) -> bool {
        self.last.is_some()
    }

    /// Notes a place, and returns the one of this process with the number before.
    pub(super) fn note(&mut self, place: Place) -> Option<Place> {
        let last = self.last.replace(place);
        self.noted.push((place, None));
        last.filter(|last| last.number + 1 == place.number)
    }

    /// Forgets the place of an attempt, if one is noted, and tells who waits for it.
    pub(super) fn forget(&mut self, id: AttemptId, first: Option<AttemptId>) {
        let (gone, noted) = self.noted.drain(..).partition(|(place, _)| place.id == id);
        self.noted = noted;
        let gone: Vec<(Place, Option<AttemptId>)> = gone;
        for (place, _) in gone {
            self.last.take_if(|last| *last == place);
            self.successor.left(&(id, place.zxid));
            self.gone.push((place, first));
        }
    }

    /// Waits for a place; returns whether it is noted.
    pub(super) fn wait(&mut self, zxid: u8, waiter: AttemptId) -> bool {
        let noted = self.noted.iter_mut().find(|(place, _)| place.zxid == zxid);
        noted.map(|(_, next)| *next = Some(waiter)).is_some()
    }

    /// Returns the attempt that came last to wait for the place of this one, if that has a place.
    pub(super) fn behind(&self, id: AttemptId) -> Option<Waiter> {
        let next = self.noted.iter().find(|(place, _)| place.id == id).and_then(|(_, next)| *next)?;
        self.noted.iter().find(|(place, _)| place.id == next).map(|(place, _)| (next, place.zxid))
    }

    /// Notes that the first in the queue has its permits in the place of its node.
    pub(super) fn moved_on(&mut self, id: AttemptId, next: Option<Waiter>) {
        self.successor.moved_on(next);
        self.forget(id, next.map(|(next, _)| next));
    }

    /// Permits may be handed over to this waiter.
    pub(super) fn open_to_permits(&mut self, waiter: Waiter) {
        if !self.open.contains(&waiter) && !self.taken.contains(&waiter.0) {
            self.open.push(waiter);
        }
    }

    /// Permits may not be handed over to it any more; false if they are being.
    pub(super) fn close(&mut self, id: AttemptId) -> bool {
        self.open.retain(|(one, _)| *one != id);
        !self.taken.contains(&id)
    }

    /// Returns the successor to which a holder of so many permits hands them over. Nobody else can from then on.
    pub(super) fn successor(&mut self, holder: AttemptId, mutant: Option<Mutant>) -> Option<Waiter> {
        let successor = match mutant {
            Some(Mutant::HandsOverUncounted) => self.open.first().copied(),
            _ => self.successor.waiter().copied(),
        };
        let (successor, place) = successor.filter(|successor| {
            let is_enough = successor.0.weight <= holder.weight || mutant == Some(Mutant::HandsOverTooFew);
            is_enough && self.open.contains(successor)
        })?;
        self.open.retain(|(one, _)| *one != successor);
        self.taken.push(successor);
        Some((successor, place))
    }

    /// Tells a successor what has come of the permits. It stays taken until it hears.
    pub(super) fn receive(&mut self, successor: AttemptId, outcome: TakingEvent, next: Option<Waiter>) {
        self.received.push(Reply::HandedOver { successor, outcome, next });
    }

    /// The successor has heard, or has ended.
    pub(super) fn heard(&mut self, successor: AttemptId) {
        self.taken.retain(|one| *one != successor);
    }

    /// Returns the outcomes that are to be told, once.
    pub(super) fn take_received(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.received)
    }

    /// Takes the places that are noted no longer.
    pub(super) fn take_gone(&mut self) -> Vec<(Place, Option<AttemptId>)> {
        std::mem::take(&mut self.gone)
    }
}
