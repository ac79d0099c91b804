//! The locks that were found held a moment ago.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::BootInstant;

/// The time for which a lock that was found held counts as busy, and the number of such locks that are remembered.
const BUSY: Duration = Duration::from_secs(1);
const MOST_BUSY: usize = 1024;

/// Locks that were found held a moment ago, by the names that a backend has for them.
///
/// A lock counts as busy for a second. A backend that has a short way to a free lock does not try it at a busy one. At most 1,024
/// locks are remembered; one more, and all that were found before are forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusyLocks(HashMap<String, BootInstant>);

impl BusyLocks {
    /// Remembers that this lock was found held now.
    pub fn add(&mut self, now: BootInstant, lock: &str) {
        if self.0.len() >= MOST_BUSY {
            self.0.retain(|_, until| now < *until);
            if self.0.len() >= MOST_BUSY {
                self.0.clear();
            }
        }
        self.0.insert(lock.to_owned(), now.plus(BUSY));
    }

    /// Forgets that this lock was found held.
    pub fn remove(&mut self, lock: &str) {
        self.0.remove(lock);
    }

    /// Returns whether this lock counts as busy.
    #[must_use]
    pub fn contains(&self, now: BootInstant, lock: &str) -> bool {
        self.0.get(lock).is_some_and(|until| now < *until)
    }

    /// Returns whether no lock is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_busy_for_a_second_and_not_more_locks_than_the_bound_are_remembered() {
        let at = |ms| BootInstant::from_origin(Duration::from_millis(ms));
        let mut busy = BusyLocks::default();
        busy.add(at(0), "early");
        for lock in 2..MOST_BUSY {
            busy.add(at(500), &lock.to_string());
        }
        assert!(busy.contains(at(999), "early") && !busy.contains(at(1000), "early"));
        busy.add(at(1000), "last");
        busy.add(at(1000), "one more");
        assert_eq!(busy.0.len(), MOST_BUSY, "the first one's time was over");
        busy.add(at(1001), "too many");
        assert!(busy.0.len() == 1 && !busy.contains(at(1001), "last") && busy.contains(at(1001), "too many"));
        busy.remove("too many");
        assert!(busy.is_empty());
    }
}
