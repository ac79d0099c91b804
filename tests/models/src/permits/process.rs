//! The attempts of one process: which places they have, as far as they have noted them, and who waits for which without asking the servers.

use super::server::{Place, Seat};

/// The places of one process.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Process {
    /// Each place that is noted, and the attempt that came last to wait for it.
    noted: Vec<(Place, Option<Seat>)>,
    /// The place that was noted last, while it is.
    last: Option<Place>,
    /// Places that are noted no longer, and the attempt that is told that it is first now.
    gone: Vec<(Place, Option<Seat>)>,
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
    pub(super) fn forget(&mut self, seat: Seat, first: Option<Seat>) {
        let (gone, noted) = self.noted.drain(..).partition(|(place, _)| place.seat == seat);
        self.noted = noted;
        let gone: Vec<(Place, Option<Seat>)> = gone;
        for (place, _) in gone {
            self.last.take_if(|last| *last == place);
            self.gone.push((place, first));
        }
    }

    /// Waits for a place; returns whether it is noted.
    pub(super) fn wait(&mut self, zxid: u8, waiter: Seat) -> bool {
        let noted = self.noted.iter_mut().find(|(place, _)| place.zxid == zxid);
        noted.map(|(_, next)| *next = Some(waiter)).is_some()
    }

    /// Returns the attempt that came last to wait for the place of this one.
    pub(super) fn behind(&self, seat: Seat) -> Option<Seat> {
        self.noted.iter().find(|(place, _)| place.seat == seat).and_then(|(_, next)| *next)
    }

    /// Takes the places that are noted no longer.
    pub(super) fn take_gone(&mut self) -> Vec<(Place, Option<Seat>)> {
        std::mem::take(&mut self.gone)
    }
}
