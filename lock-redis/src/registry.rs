//! The attempts of this client that wait, and those that gave up: what it may have at the server, by attempt.

use std::collections::BTreeMap;

use lock_core::GrantId;
use lock_core::driver::IdMap;

/// The number of remembered attempts that gave up.
const MOST_ABANDONED: usize = 10_000;

/// The attempts of one client that have, or may have, a place in a queue at the server.
///
/// `W` is a waiter, which is told of its grant; `L` is a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registry<W, L> {
    waiting: IdMap<GrantId, W>,
    /// Attempts that gave up: none of them ever becomes a guard, so a grant to one is released at once. Kept until their
    /// cancellation is confirmed, as long as there are not too many: one that could not be cancelled for longer than the core tries may
    /// have its place in the queue all the same, which others keep alive. In order: they are also found by the beginning of an id.
    abandoned: BTreeMap<GrantId, L>,
    /// Grants to such attempts.
    unwanted: Vec<(GrantId, L)>,
}

impl<W, L> Default for Registry<W, L> {
    fn default() -> Self {
        Self { waiting: IdMap::default(), abandoned: BTreeMap::new(), unwanted: Vec::new() }
    }
}

impl<W, L> Registry<W, L> {
    /// Adds an attempt that waits.
    pub(crate) fn register(&mut self, nonce: GrantId, waiter: W) {
        self.waiting.insert(nonce, waiter);
    }

    /// Removes an attempt that waits no longer, and returns its waiter; one that gave up is remembered with its lock.
    pub(crate) fn deregister(&mut self, nonce: GrantId, gave_up: Option<L>) -> Option<W> {
        if let Some(lock) = gave_up {
            if self.abandoned.len() >= MOST_ABANDONED {
                // The server's own bounds remain: a claim time for each.
                self.abandoned.clear();
            }
            self.abandoned.insert(nonce, lock);
        }
        self.waiting.remove(&nonce)
    }

    /// The waiter of an attempt that waits.
    pub(crate) fn waiter(&self, nonce: GrantId) -> Option<&W> {
        self.waiting.get(&nonce)
    }

    pub(crate) fn waiter_mut(&mut self, nonce: GrantId) -> Option<&mut W> {
        self.waiting.get_mut(&nonce)
    }

    /// All that wait, in no order.
    pub(crate) fn waiters(&mut self) -> impl Iterator<Item = &mut W> {
        self.waiting.values_mut()
    }

    /// Everything there is, in order, and of each waiter this part.
    pub(crate) fn sorted<P: Ord>(&self, part: impl Fn(&W) -> P) -> (Vec<(GrantId, P)>, Vec<GrantId>, Vec<GrantId>) {
        let mut waiting: Vec<_> = self.waiting.iter().map(|(nonce, waiter)| (*nonce, part(waiter))).collect();
        let abandoned = self.abandoned.keys().copied().collect();
        let mut unwanted: Vec<_> = self.unwanted.iter().map(|(nonce, _)| *nonce).collect();
        waiting.sort_unstable();
        unwanted.sort_unstable();
        (waiting, abandoned, unwanted)
    }

    /// Takes note of a grant to an attempt that does not wait; returns whether it is to be released.
    pub(crate) fn note_granted(&mut self, nonce: GrantId) -> bool {
        let lock = self.abandoned.remove(&nonce);
        let unwanted = lock.is_some();
        self.unwanted.extend(lock.map(|lock| (nonce, lock)));
        unwanted
    }

    /// Whether any attempt that gave up has an id that begins with these digits.
    pub(crate) fn any_abandoned(&self, beginning: &str) -> bool {
        let least = || format!("{beginning:0<width$}", width = GrantId::LENGTH).parse::<GrantId>().ok();
        let least = if self.abandoned.is_empty() { None } else { least() };
        let next = least.and_then(|least| self.abandoned.range(least..).next());
        next.is_some_and(|(nonce, _)| nonce.encode(&mut [0; GrantId::LENGTH]).starts_with(beginning))
    }

    /// Takes so many of the grants that nobody wants any more at most, to be released.
    pub(crate) fn take_unwanted(&mut self, most: usize) -> Vec<(GrantId, L)> {
        let rest = self.unwanted.split_off(most.min(self.unwanted.len()));
        std::mem::replace(&mut self.unwanted, rest)
    }

    /// Forgets an attempt that gave up: nothing of it can be granted any more.
    pub(crate) fn forget(&mut self, nonce: GrantId) {
        self.abandoned.remove(&nonce);
    }

    /// Whether nothing is registered, and nothing is remembered.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.abandoned.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_gave_up_is_found_by_the_beginning_of_its_id() {
        let id = |first: char| format!("{first}1234567{}", "f".repeat(24)).parse::<GrantId>().unwrap();
        let mut registry = Registry::<(), ()>::default();
        assert!(!registry.any_abandoned("51234567ffffffff"), "there is none");
        for first in ['2', '5', '9'] {
            registry.deregister(id(first), Some(()));
        }
        registry.register(id('6'), ());
        for (beginning, is_one) in [
            ("51234567ffffffff", true),
            ("21234567ffffffff", true),
            ("51234567fffffffe", false),
            ("61234567ffffffff", false),
            ("ffffffffffffffff", false),
            ("no digits at all", false),
        ] {
            assert_eq!(registry.any_abandoned(beginning), is_one, "{beginning}");
        }
        registry.forget(id('5'));
        assert!(!registry.any_abandoned("51234567ffffffff"));
    }
}
