//! The counters from which grants have their fencing tokens.

use std::borrow::Cow;
use std::sync::Arc;

use super::slot::{find_numbers, number_of, slot};

/// The counters of one client: one for all locks of a server, or one for each slot of a cluster. A clone has the same counters.
///
/// A counter holds the last token that it gave: never less than the server's clock in µs at that time, so that one that is lost
/// goes on above all that were given, unless the clock was set back too. Locks that share one leave nothing at the server once they
/// are free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenCounters {
    key: Arc<str>,
    is_by_slot: bool,
}

impl TokenCounters {
    /// One counter, for a server that has all keys.
    pub(super) fn one(prefix: &str) -> Self {
        Self { key: format!("{prefix}:tokens").into(), is_by_slot: false }
    }

    /// One for each slot: a script has keys of one slot only.
    pub(super) fn by_slot(self) -> Self {
        // Now, and not while somebody asks for a lock.
        find_numbers();
        Self { is_by_slot: true, ..self }
    }

    /// The key of the counter of this lock's tokens.
    pub(super) fn of(&self, lock: &str) -> Cow<'_, str> {
        if !self.is_by_slot {
            return Cow::Borrowed(&self.key);
        }
        Cow::Owned(format!("{}:{{{}}}", self.key, number_of(slot(lock.as_bytes()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_has_one_counter() {
        let counters = TokenCounters::one("lock");
        assert_eq!(counters.of("lock:mutex:{a}"), "lock:tokens");
        assert_eq!(counters.of("anything"), "lock:tokens");
    }

    #[test]
    fn each_slot_has_a_counter_in_that_slot() {
        let counters = TokenCounters::one("lock").by_slot();
        for lock in ["lock:mutex:{a}", "lock:rwlock:{a}", "lock:mutex:{b}", "app:{jobs}:lock", "odd}key", ""] {
            let counter = counters.of(lock).into_owned();
            assert!(counter.starts_with("lock:tokens:{") && counter.ends_with('}'), "{counter}");
            assert_eq!(slot(counter.as_bytes()), slot(lock.as_bytes()), "{counter}");
        }
        assert_eq!(counters.of("lock:mutex:{a}"), counters.of("lock:rwlock:{a}"));
        assert_ne!(counters.of("lock:mutex:{a}"), counters.of("lock:mutex:{b}"));
    }
}
