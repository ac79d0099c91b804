//! The waiters of one queue in the order of their coming, decided without I/O: which one asks the servers, and which one looks after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lock_core::clock::BootInstant;
use tokio::sync::Notify;

/// The waiters of one queue, the first of which asks the servers.
#[derive(Debug)]
pub(super) struct LocalOrder {
    /// By their numbers.
    waiters: BTreeMap<u64, LocalWaiter>,
    next_number: u64,
    /// The waiters that have had the first place and not left: one, and those that were passed over.
    asking: BTreeSet<u64>,
    /// The instant at which the servers were asked last.
    asked_at: BootInstant,
}

/// A waiter, as the others of its queue see it.
#[derive(Debug)]
struct LocalWaiter {
    /// Told of a better place, and of a release.
    news: Arc<Notify>,
    /// Whether it was the first one and did not ask: its future is not polled.
    is_absent: bool,
}

/// The place of a waiter among those that are polled, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalRank {
    /// It asks the servers.
    First,
    /// It looks after the first one, which asked at this instant last.
    Second(BootInstant),
    /// It waits for a better place.
    Other,
}

impl LocalOrder {
    pub(super) fn new(now: BootInstant) -> Self {
        Self { waiters: BTreeMap::new(), next_number: 0, asking: BTreeSet::new(), asked_at: now }
    }

    /// Adds a waiter: its number, and where it is told of what is new.
    pub(super) fn enter(&mut self) -> (u64, Arc<Notify>) {
        let (number, news) = (self.next_number, Arc::<Notify>::default());
        self.next_number += 1;
        self.waiters.insert(number, LocalWaiter { news: news.clone(), is_absent: false });
        (number, news)
    }

    /// Removes a waiter, and tells those that come forward.
    pub(super) fn leave(&mut self, number: u64) {
        let was_in_front = self.rank(number) != LocalRank::Other;
        self.waiters.remove(&number);
        self.asking.remove(&number);
        if was_in_front {
            self.tell_front();
        }
    }

    /// The number of waiters.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the place of a waiter. The first one is to ask from now on; one that was passed over asks beside it, since it is polled
    /// after all.
    pub(super) fn take_rank(&mut self, number: u64) -> LocalRank {
        let was_passed_over = self.waiters.get(&number).is_some_and(|waiter| waiter.is_absent);
        let rank = if was_passed_over { LocalRank::First } else { self.rank(number) };
        if rank == LocalRank::First {
            self.asking.insert(number);
        }
        rank
    }

    fn rank(&self, number: u64) -> LocalRank {
        match self.present().take(2).position(|(present, _)| present == number) {
            Some(0) => LocalRank::First,
            Some(_) => LocalRank::Second(self.asked_at),
            None => LocalRank::Other,
        }
    }

    /// Notes that a waiter asks the servers now.
    pub(super) fn asks(&mut self, number: u64, now: BootInstant) {
        self.asked_at = now;
        // It may have been passed over. If another one asks by now, that one keeps the first place: this one may again not be polled.
        if self.asking.iter().all(|asking| *asking == number)
            && let Some(own) = self.waiters.get_mut(&number)
        {
            own.is_absent = false;
        }
    }

    /// Notes that nobody could ask until now.
    pub(super) fn stood_still(&mut self, now: BootInstant) {
        self.asked_at = now;
    }

    /// Has the second waiter take the place of the first, if that has not asked since this instant.
    pub(super) fn pass_over_first(&mut self, second: u64, asked_at: BootInstant, now: BootInstant) {
        if self.rank(second) != LocalRank::Second(asked_at) {
            return;
        }
        if let Some(first) = self.waiters.values_mut().find(|waiter| !waiter.is_absent) {
            first.is_absent = true;
        }
        self.asked_at = now;
        self.tell_front();
    }

    /// Tells those that ask, and the first one, which asks now.
    pub(super) fn tell_asking(&self) {
        let asking = self.asking.iter().filter_map(|number| self.waiters.get(number));
        asking.for_each(|waiter| waiter.news.notify_one());
        if let Some((_, first)) = self.present().next() {
            first.news.notify_one();
        }
    }

    /// Tells the first one that it is, and the second one that it has to look after the first.
    fn tell_front(&self) {
        self.present().take(2).for_each(|(_, waiter)| waiter.news.notify_one());
    }

    /// The waiters that ask when they are the first, in order.
    fn present(&self) -> impl Iterator<Item = (u64, &LocalWaiter)> {
        self.waiters.iter().filter(|(_, waiter)| !waiter.is_absent).map(|(number, waiter)| (*number, waiter))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    const fn at(seconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_secs(seconds))
    }

    fn is_told(news: &Notify) -> bool {
        news.notified().now_or_never().is_some()
    }

    #[test]
    fn a_first_one_that_does_not_ask_is_passed_over_until_the_others_have_gone() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, to_second), (third, to_third)] = [(); 3].map(|()| order.enter());
        assert_eq!(order.take_rank(first), LocalRank::First);
        order.asks(first, at(1));
        order.pass_over_first(second, at(0), at(2));
        assert_eq!(order.take_rank(second), LocalRank::Second(at(1)), "the first one has asked since");
        order.pass_over_first(second, at(1), at(5));
        assert!(is_told(&to_second) && is_told(&to_third));
        assert_eq!(order.take_rank(second), LocalRank::First);
        assert_eq!(order.take_rank(third), LocalRank::Second(at(5)));
        // It is polled once, and left alone again: the one that asks is told all the same, and keeps its place until it goes.
        order.asks(first, at(6));
        order.tell_asking();
        assert!(is_told(&to_second));
        order.asks(second, at(7));
        order.leave(second);
        assert!(is_told(&to_third));
        assert_eq!(order.take_rank(third), LocalRank::First);
        order.leave(third);
        order.asks(first, at(8));
        assert_eq!(order.take_rank(first), LocalRank::First);
    }

    #[test]
    fn whoever_was_passed_over_before_it_knew_that_it_was_the_first_asks_when_it_is_polled() {
        let mut order = LocalOrder::new(at(0));
        let [(first, to_first), (second, _)] = [(); 2].map(|()| order.enter());
        order.pass_over_first(second, at(0), at(5));
        assert_eq!(order.take_rank(second), LocalRank::First);
        assert_eq!(order.take_rank(first), LocalRank::First, "it is polled after all");
        order.tell_asking();
        assert!(is_told(&to_first));
        order.leave(second);
        order.asks(first, at(6));
        order.tell_asking();
        assert!(is_told(&to_first));
        let (third, _) = order.enter();
        assert_eq!(order.take_rank(third), LocalRank::Second(at(6)));
    }

    #[test]
    fn nobody_is_passed_over_for_a_time_in_which_nobody_could_ask() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _)] = [(); 2].map(|()| order.enter());
        order.stood_still(at(3));
        order.pass_over_first(second, at(0), at(4));
        assert_eq!(order.take_rank(first), LocalRank::First);
        assert_eq!(order.take_rank(second), LocalRank::Second(at(3)));
    }

    #[test]
    fn a_second_one_that_has_become_the_first_passes_nobody_over() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _)] = [(); 2].map(|()| order.enter());
        order.leave(first);
        order.pass_over_first(second, at(0), at(5));
        assert_eq!(order.take_rank(second), LocalRank::First);
    }

    #[test]
    fn whoever_is_behind_is_told_nothing() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _), (_, to_third), (fourth, to_fourth)] = [(); 4].map(|()| order.enter());
        order.tell_asking();
        order.leave(fourth);
        order.pass_over_first(second, at(0), at(5));
        assert!(is_told(&to_third) && !is_told(&to_fourth));
        order.leave(first);
        assert!(!is_told(&to_third), "it was passed over before");
    }
}
