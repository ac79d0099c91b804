//! The held leases of a client, by id and by the instant at which each of them is looked at.
//!
//! A session that ends takes thousands of leases with it, each of which is found, told and taken out by itself: no step looks at more
//! than a few of them.

use std::collections::BTreeSet;
use std::hash::Hash;

use crate::clock::BootInstant;
use crate::driver::IdMap;

/// Leases, each with an id and the instant at which it is due.
#[derive(Debug)]
pub(super) struct LeaseTable<K, L> {
    leases: IdMap<K, L>,
    due: BTreeSet<(BootInstant, K)>,
}

impl<K, L> Default for LeaseTable<K, L> {
    fn default() -> Self {
        Self { leases: IdMap::default(), due: BTreeSet::new() }
    }
}

impl<K: Copy + Ord + Hash, L> LeaseTable<K, L> {
    pub(super) fn get(&self, id: K) -> Option<&L> {
        self.leases.get(&id)
    }

    pub(super) fn leases(&self) -> impl Iterator<Item = &L> {
        self.leases.values()
    }

    /// Puts a lease in that is not there.
    pub(super) fn put(&mut self, id: K, at: BootInstant, lease: L) {
        self.leases.insert(id, lease);
        self.due.insert((at, id));
    }

    /// Takes a lease out that is due at this instant.
    pub(super) fn take(&mut self, id: K, at: BootInstant) {
        self.due.remove(&(at, id));
        self.leases.remove(&id);
    }

    /// Takes one out that is due by now.
    pub(super) fn take_due(&mut self, now: BootInstant) -> Option<L> {
        self.due.first().filter(|(at, _)| *at <= now)?;
        let (_, id) = self.due.pop_first()?;
        self.leases.remove(&id)
    }

    /// The instant at which the first one is due.
    pub(super) fn next(&self) -> Option<BootInstant> {
        self.due.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;
    use std::hash::Hasher;
    use std::time::Duration;

    use super::*;

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// An id that counts how often one is compared with another.
    #[derive(Debug, Clone, Copy)]
    struct Counted(u64);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }

    impl Eq for Counted {}

    impl Hash for Counted {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    const fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn ten_thousand_leases_that_end_together_in_any_order_cost_ten_thousand_times_one() {
        const MANY: u64 = 10_000;
        // Both are prime to the number: every lease comes once, in an order of its own.
        let order = |step: u64| (0..MANY).map(move |number| number * step % MANY);
        let mut table = LeaseTable::default();
        order(7919).for_each(|id| table.put(Counted(id), at(1), id));
        for id in order(4211) {
            assert_eq!(table.get(Counted(id)), Some(&id));
            table.take(Counted(id), at(1));
            assert_eq!(table.get(Counted(id)), None);
        }
        assert_eq!(table.next(), None);
        // A lease is compared with a few on each level of a tree; if it met all others, that would be 5,000 for each.
        let compared = COMPARED.get() / MANY;
        assert!(compared < 200, "each lease was compared {compared} times");
    }

    #[test]
    fn the_due_ones_come_in_the_order_in_which_they_are_due() {
        let mut table = LeaseTable::default();
        [(3, 30), (1, 10), (2, 20)].into_iter().for_each(|(id, ms)| table.put(id, at(ms), id));
        assert_eq!(table.next(), Some(at(10)));
        assert_eq!(table.take_due(at(9)), None);
        assert_eq!((table.take_due(at(20)), table.take_due(at(20)), table.take_due(at(20))), (Some(1), Some(2), None));
        assert_eq!((table.leases().count(), table.next()), (1, Some(at(30))));
    }
}
