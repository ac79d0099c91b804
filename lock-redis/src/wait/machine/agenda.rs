//! The order in which the locks that are waited for are due to be asked for.

use std::collections::BTreeMap;

use lock_core::clock::BootInstant;

/// An entry of the agenda: when it is due, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AgendaEntry {
    at: BootInstant,
    number: u64,
}

impl AgendaEntry {
    pub(super) fn at(self) -> BootInstant {
        self.at
    }
}

/// The locks that are waited for, by when they are due. As many entries as there are queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Agenda<L> {
    entries: BTreeMap<AgendaEntry, L>,
    last: u64,
}

impl<L> Default for Agenda<L> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), last: 0 }
    }
}

impl<L> Agenda<L> {
    /// Makes a new entry.
    pub(super) fn enter(&mut self, at: BootInstant, lock: L) -> AgendaEntry {
        self.last += 1;
        let entry = AgendaEntry { at, number: self.last };
        self.entries.insert(entry, lock);
        entry
    }

    /// Moves an entry to another time.
    pub(super) fn put_off(&mut self, entry: &mut AgendaEntry, at: BootInstant) {
        if let Some(lock) = self.entries.remove(entry) {
            entry.at = at;
            self.entries.insert(*entry, lock);
        }
    }

    pub(super) fn remove(&mut self, entry: AgendaEntry) {
        self.entries.remove(&entry);
    }

    /// The first lock, if it is due.
    pub(super) fn due(&self, now: BootInstant) -> Option<&L> {
        self.entries.first_key_value().filter(|(entry, _)| entry.at <= now).map(|(_, lock)| lock)
    }

    /// The instant at which the first lock is due.
    pub(super) fn next(&self) -> BootInstant {
        self.entries.first_key_value().map_or(BootInstant::FAR_FUTURE, |(entry, _)| entry.at)
    }
}
