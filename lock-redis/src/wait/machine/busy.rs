//! The locks that were found held a moment ago.

use std::collections::HashMap;
use std::time::Duration;

use lock_core::clock::BootInstant;

/// The time for which a lock that was found held counts as busy, and the number of such locks that are remembered.
const BUSY: Duration = Duration::from_secs(1);
const MOST_BUSY: usize = 1024;

/// Locks that were found held, and until when the short ways are not worth a try.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BusyLocks(HashMap<String, BootInstant>);

impl BusyLocks {
    pub(super) fn add(&mut self, now: BootInstant, lock: &str) {
        if self.0.len() >= MOST_BUSY {
            self.0.retain(|_, until| now < *until);
            if self.0.len() >= MOST_BUSY {
                self.0.clear();
            }
        }
        self.0.insert(lock.to_owned(), now.plus(BUSY));
    }

    pub(super) fn remove(&mut self, lock: &str) {
        self.0.remove(lock);
    }

    pub(super) fn contains(&self, now: BootInstant, lock: &str) -> bool {
        self.0.get(lock).is_some_and(|until| now < *until)
    }

    pub(super) fn is_empty(&self) -> bool {
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
