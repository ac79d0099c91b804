//! The waiters of one queue in the order of their coming, decided without I/O: which one asks the servers, and who looks after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lock_core::clock::BootInstant;
use tokio::sync::Notify;

/// The number of waiters, from the front, whose places are told apart.
pub(super) const TOLD_APART: usize = 9;

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
    /// It looks after those before it, of whom one asked at this instant last. There are `ahead` of them, or more if they are
    /// [`TOLD_APART`].
    Behind { ahead: usize, asked_at: BootInstant },
}

impl LocalRank {
    /// Whether the waiter is to be told of a change in front: it is one of the first two.
    fn is_in_front(self) -> bool {
        !matches!(self, Self::Behind { ahead: 2.., .. })
    }
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
        let was_in_front = self.rank(number).is_in_front();
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
        match self.present().take(TOLD_APART).position(|(present, _)| present == number).unwrap_or(TOLD_APART) {
            0 => LocalRank::First,
            ahead => LocalRank::Behind { ahead, asked_at: self.asked_at },
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

    /// Has a waiter take the place of those before it, if none of them has asked since this instant and they are not too many to be
    /// told apart.
    pub(super) fn pass_over(&mut self, number: u64, asked_at: BootInstant, now: BootInstant) {
        match self.rank(number) {
            LocalRank::Behind { ahead: ..TOLD_APART, asked_at: last } if last == asked_at => {}
            _ => return,
        }
        self.waiters.range_mut(..number).for_each(|(_, before)| before.is_absent = true);
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

    /// Tells the first one that it is, and the second one that it has to look after the first. The others see it when they look again.
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

    const fn right_behind(asked_at: BootInstant) -> LocalRank {
        LocalRank::Behind { ahead: 1, asked_at }
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
        order.pass_over(second, at(0), at(2));
        assert_eq!(order.take_rank(second), right_behind(at(1)), "the first one has asked since");
        order.pass_over(second, at(1), at(5));
        assert!(is_told(&to_second) && is_told(&to_third));
        assert_eq!(order.take_rank(second), LocalRank::First);
        assert_eq!(order.take_rank(third), right_behind(at(5)));
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
        order.pass_over(second, at(0), at(5));
        assert_eq!(order.take_rank(second), LocalRank::First);
        assert_eq!(order.take_rank(first), LocalRank::First, "it is polled after all");
        order.tell_asking();
        assert!(is_told(&to_first));
        order.leave(second);
        order.asks(first, at(6));
        order.tell_asking();
        assert!(is_told(&to_first));
        let (third, _) = order.enter();
        assert_eq!(order.take_rank(third), right_behind(at(6)));
    }

    #[test]
    fn several_who_do_not_ask_are_passed_over_together() {
        let mut order = LocalOrder::new(at(0));
        let numbers = [(); TOLD_APART + 2].map(|()| order.enter().0);
        let behind = |ahead| LocalRank::Behind { ahead, asked_at: at(0) };
        assert_eq!(order.take_rank(numbers[0]), LocalRank::First);
        assert_eq!(order.take_rank(numbers[TOLD_APART - 1]), behind(TOLD_APART - 1));
        assert_eq!(order.take_rank(numbers[TOLD_APART]), behind(TOLD_APART));
        assert_eq!(order.take_rank(numbers[TOLD_APART + 1]), behind(TOLD_APART));
        order.pass_over(numbers[TOLD_APART], at(0), at(4));
        assert_eq!(order.take_rank(numbers[TOLD_APART]), behind(TOLD_APART), "those before it are not counted");
        order.pass_over(numbers[2], at(0), at(5));
        assert_eq!(order.take_rank(numbers[2]), LocalRank::First);
        assert_eq!(order.take_rank(numbers[3]), LocalRank::Behind { ahead: 1, asked_at: at(5) });
        assert_eq!(order.take_rank(numbers[1]), LocalRank::First, "it is polled after all");
    }

    #[test]
    fn nobody_is_passed_over_for_a_time_in_which_nobody_could_ask() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _)] = [(); 2].map(|()| order.enter());
        order.stood_still(at(3));
        order.pass_over(second, at(0), at(4));
        assert_eq!(order.take_rank(first), LocalRank::First);
        assert_eq!(order.take_rank(second), right_behind(at(3)));
    }

    #[test]
    fn a_second_one_that_has_become_the_first_passes_nobody_over() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _)] = [(); 2].map(|()| order.enter());
        order.leave(first);
        order.pass_over(second, at(0), at(5));
        assert_eq!(order.take_rank(second), LocalRank::First);
    }

    #[test]
    fn whoever_is_behind_is_told_nothing() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _), (_, to_third), (fourth, to_fourth)] = [(); 4].map(|()| order.enter());
        order.tell_asking();
        order.leave(fourth);
        order.pass_over(second, at(0), at(5));
        assert!(is_told(&to_third) && !is_told(&to_fourth));
        order.leave(first);
        assert!(!is_told(&to_third), "it was passed over before");
    }
}
