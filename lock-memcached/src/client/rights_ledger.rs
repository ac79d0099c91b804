//! The ledger of rights of which there is a fixed number: which ones are given until when, and who waits for one.
//!
//! Decided without a clock, a lock or a task: each event comes with its instant. `W` wakes a waiter.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lock_core::clock::BootInstant;

/// The time by which steps may end late on a busy machine, and in which a right that was handed over is picked up.
pub(super) const LATE: Duration = Duration::from_millis(500);

/// The place of a waiter, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// A right that was given: the end of its steps, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    end: BootInstant,
    number: Place,
}

/// The rights that are given, and those who wait for one.
#[derive(Debug)]
pub(super) struct RightsLedger<W> {
    most: usize,
    last: u64,
    given: BTreeSet<Given>,
    /// The waiters, and until when each waits. Whoever begins to while a right is free asks once more at once.
    waiting: BTreeMap<Place, (BootInstant, W)>,
}

impl<W> RightsLedger<W> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, last: 0, given: BTreeSet::new(), waiting: BTreeMap::new() }
    }

    /// The number of those that are given, this one not counted.
    pub(super) fn given_besides(&self, own: Given) -> usize {
        self.given.len() - usize::from(self.given.contains(&own))
    }

    /// The number of those that are given.
    pub(super) fn given(&self) -> usize {
        self.given.len()
    }

    /// Gives a right for steps that end by `until`, if one is free, or overdue.
    ///
    /// An overdue right goes to whoever asks, and not to the first one that waits: that one may be polled as little as whoever
    /// kept it.
    pub(super) fn asks(&mut self, now: BootInstant, until: BootInstant) -> Option<Given> {
        if self.given.len() >= self.most {
            self.given.first().filter(|first| first.is_overdue(now))?;
            self.given.pop_first();
        }
        let number = self.next_place();
        Some(self.gives(number, until))
    }

    /// Adds a waiter. Returns its place.
    pub(super) fn waits(&mut self, until: BootInstant, wake: W) -> Place {
        let place = self.next_place();
        self.waits_at(place, until, wake);
        place
    }

    /// Puts a waiter back at the place that it had before.
    pub(super) fn waits_at(&mut self, place: Place, until: BootInstant, wake: W) {
        self.waiting.insert(place, (until, wake));
    }

    /// Removes a waiter.
    pub(super) fn leaves(&mut self, place: Place) {
        self.waiting.remove(&place);
    }

    /// A right is released, unless it was overdue and is another's. Returns who is to be handed it: the first one that waits.
    pub(super) fn returns(&mut self, given: Given, now: BootInstant) -> Option<(W, Given)> {
        if !self.given.remove(&given) {
            return None;
        }
        loop {
            let (place, (until, wake)) = self.waiting.pop_first()?;
            // Who has no time left finds that out by itself.
            if now < until {
                // For so long as it takes to be picked up.
                return Some((wake, self.gives(place, now)));
            }
        }
    }

    /// A right that was handed over is picked up, for steps that end by `until`; nothing if it was overdue and is another's.
    pub(super) fn picks_up(&mut self, handed: Given, until: BootInstant) -> Option<Given> {
        self.given.remove(&handed).then(|| self.gives(handed.number, until))
    }

    /// The instant at which who waits until then asks again. One may be handed over meanwhile and not be picked up.
    pub(super) fn asks_again_at(&self, now: BootInstant, until: BootInstant) -> BootInstant {
        let next = now.plus(LATE).min(until);
        self.given.first().map_or(next, |first| next.min(first.end.plus(LATE)))
    }

    fn gives(&mut self, number: Place, end: BootInstant) -> Given {
        let given = Given { end, number };
        self.given.insert(given);
        given
    }

    fn next_place(&mut self) -> Place {
        self.last += 1;
        Place(self.last)
    }
}

impl Given {
    fn is_overdue(self, now: BootInstant) -> bool {
        now >= self.end.plus(LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    fn ledger(most: usize) -> RightsLedger<&'static str> {
        RightsLedger::new(most)
    }

    #[test]
    fn there_are_so_many_and_they_go_to_waiters_in_the_order_of_their_coming() {
        let mut ledger = ledger(2);
        let [first, second] = [2000, 3000].map(|until| ledger.asks(at(0), at(until)).unwrap());
        assert_eq!(ledger.asks(at(0), at(2000)), None);
        let [_, left, _] = ["a", "b", "c"].map(|wake| ledger.waits(at(4000), wake));
        ledger.leaves(left);
        let (wake, handed) = ledger.returns(second, at(100)).unwrap();
        assert_eq!((wake, ledger.given()), ("a", 2));
        let picked_up = ledger.picks_up(handed, at(4000)).unwrap();
        assert_eq!(ledger.given_besides(picked_up), 1);
        assert_eq!(ledger.returns(picked_up, at(200)).map(|(wake, _)| wake), Some("c"));
        assert!(ledger.returns(first, at(200)).is_none());
        assert_eq!(ledger.given(), 1, "nobody waits any more");
    }

    #[test]
    fn what_is_overdue_goes_to_whoever_asks_and_comes_back_once() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(1000)).unwrap();
        ledger.waits(at(9000), "is not polled");
        assert_eq!(ledger.asks(at(1499), at(3000)), None, "steps may end a little late");
        let second = ledger.asks(at(1500), at(3000)).unwrap();
        assert_eq!(ledger.given_besides(first), 1);
        assert!(ledger.returns(first, at(1600)).is_none());
        assert_eq!(ledger.returns(second, at(1600)).map(|(wake, _)| wake), Some("is not polled"));
    }

    #[test]
    fn what_is_not_picked_up_goes_to_whoever_asks() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(9000)).unwrap();
        let place = ledger.waits(at(9000), "slow");
        let (_, handed) = ledger.returns(first, at(1000)).unwrap();
        assert_eq!(ledger.asks_again_at(at(1000), at(9000)), at(1500));
        let second = ledger.asks(at(1500), at(9000)).unwrap();
        assert_eq!(ledger.picks_up(handed, at(9000)), None);
        ledger.waits(at(9000), "later");
        ledger.waits_at(place, at(9000), "slow");
        assert_eq!(ledger.returns(second, at(1600)).map(|(wake, _)| wake), Some("slow"), "it has its place again");
    }

    #[test]
    fn who_has_no_time_left_is_handed_nothing() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(9000)).unwrap();
        ledger.waits(at(500), "ended");
        ledger.waits(at(2000), "waits");
        assert_eq!(ledger.returns(first, at(500)).map(|(wake, _)| wake), Some("waits"));
    }

    #[test]
    fn who_waits_asks_again_before_anything_can_be_overdue_for_long() {
        let mut ledger = ledger(1);
        ledger.asks(at(0), at(100));
        assert_eq!(ledger.asks_again_at(at(0), at(9000)), at(500), "one may be handed over at any time");
        assert_eq!(ledger.asks_again_at(at(300), at(9000)), at(600));
        assert_eq!(ledger.asks_again_at(at(300), at(400)), at(400));
    }
}
