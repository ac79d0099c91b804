//! The waiters of one queue in the order of their coming, decided without I/O: which one asks the servers, and who looks after it.
//!
//! A waiter whose future is not polled may have the first place. The others see that nobody asks, and call everybody. Those before one of
//! them that do not answer are passed over, until they are polled.

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
    /// The waiters that were not passed over, or have been polled since. The first one of them is to ask.
    present: BTreeSet<u64>,
    /// The waiters that have had the first place and not left: one, and those that were passed over.
    asking: BTreeSet<u64>,
    asked: LastAsked,
}

/// A waiter, as the others of its queue see it.
#[derive(Debug)]
struct LocalWaiter {
    /// Told of a better place, of a call, and of a release.
    news: Arc<Notify>,
    /// The instant at which it looked at its place last, or came.
    seen_at: BootInstant,
}

/// The last request to the servers, as those behind the one that asks know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastAsked {
    /// The instant of it, or that from which the next one is waited for.
    pub(super) at: BootInstant,
    /// The instant at which everybody was called, as nobody had asked for long.
    pub(super) called_at: Option<BootInstant>,
}

/// The place of a waiter among those that are polled, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LocalRank {
    /// It asks the servers.
    First,
    /// It looks after those before it, one of whom asks. There are `ahead` of them, or more if they are [`TOLD_APART`].
    Behind { ahead: usize, asked: LastAsked },
}

impl LocalRank {
    /// Whether the waiter is to be told of a change in front: it is one of the first two.
    fn is_in_front(self) -> bool {
        !matches!(self, Self::Behind { ahead: 2.., .. })
    }
}

impl LastAsked {
    fn at(at: BootInstant) -> Self {
        Self { at, called_at: None }
    }
}

impl LocalOrder {
    pub(super) fn new(now: BootInstant) -> Self {
        let (present, asking) = (BTreeSet::new(), BTreeSet::new());
        Self { waiters: BTreeMap::new(), next_number: 0, present, asking, asked: LastAsked::at(now) }
    }

    /// Adds a waiter: its number, and where it is told of what is new.
    pub(super) fn enter(&mut self, now: BootInstant) -> (u64, Arc<Notify>) {
        let (number, news) = (self.next_number, Arc::<Notify>::default());
        self.next_number += 1;
        self.waiters.insert(number, LocalWaiter { news: news.clone(), seen_at: now });
        self.present.insert(number);
        (number, news)
    }

    /// Removes a waiter, and tells those that come forward.
    pub(super) fn leave(&mut self, number: u64) {
        let was_in_front = self.rank(number).is_in_front();
        self.waiters.remove(&number);
        self.present.remove(&number);
        self.asking.remove(&number);
        if was_in_front {
            self.tell_front();
        }
    }

    /// The number of waiters.
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Returns the place of a waiter that is polled now. The first one is to ask from now on. One that was passed over has its place again,
    /// and asks beside the one that passed it over if nobody is before it.
    pub(super) fn take_rank(&mut self, number: u64, now: BootInstant) -> LocalRank {
        if let Some(own) = self.waiters.get_mut(&number) {
            own.seen_at = now;
            self.present.insert(number);
        }
        let rank = self.rank(number);
        if rank == LocalRank::First {
            self.asking.insert(number);
        }
        rank
    }

    fn rank(&self, number: u64) -> LocalRank {
        match self.present.iter().take(TOLD_APART).position(|present| *present == number).unwrap_or(TOLD_APART) {
            0 => LocalRank::First,
            ahead => LocalRank::Behind { ahead, asked: self.asked },
        }
    }

    /// Notes that a waiter asks the servers now.
    pub(super) fn asks(&mut self, number: u64, now: BootInstant) {
        self.asked = LastAsked::at(now);
        // It may have been passed over. If another one asks by now, that one keeps the first place: this one may again not be polled.
        if self.asking.iter().all(|asking| *asking == number) && self.waiters.contains_key(&number) {
            self.present.insert(number);
        }
    }

    /// Has a waiter call everybody, if nobody has asked or called since it saw this; after a call it passes over those before it that have
    /// not answered. Returns whether it did.
    pub(super) fn pass_over(&mut self, number: u64, seen: LastAsked, now: BootInstant) -> bool {
        if self.asked != seen || self.rank(number) == LocalRank::First {
            return false;
        }
        let Some(called_at) = seen.called_at else {
            self.asked.called_at = Some(now);
            self.waiters.values().for_each(|waiter| waiter.news.notify_one());
            return false;
        };
        let waiters = &self.waiters;
        let has_answered = |other: &u64| waiters.get(other).is_some_and(|waiter| waiter.seen_at >= called_at);
        self.present.retain(|other| *other >= number || has_answered(other));
        self.asked = LastAsked::at(now);
        self.tell_front();
        true
    }

    /// Tells those that ask, and the first one, which asks now.
    pub(super) fn tell_asking(&self) {
        self.tell(self.asking.iter().chain(self.present.first()));
    }

    /// Tells the first one that it is, and the second one that it has to look after the first. The others see it when they look again.
    fn tell_front(&self) {
        self.tell(self.present.iter().take(2));
    }

    fn tell<'a>(&self, numbers: impl Iterator<Item = &'a u64>) {
        numbers.filter_map(|number| self.waiters.get(number)).for_each(|waiter| waiter.news.notify_one());
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

    const fn behind(ahead: usize, asked_at: BootInstant) -> LocalRank {
        LocalRank::Behind { ahead, asked: LastAsked { at: asked_at, called_at: None } }
    }

    fn entered<const N: usize>(order: &mut LocalOrder) -> [(u64, Arc<Notify>); N] {
        [(); N].map(|()| order.enter(at(0)))
    }

    fn is_told(news: &Notify) -> bool {
        news.notified().now_or_never().is_some()
    }

    /// Calls everybody when nobody has asked since `asked_at`; a second later passes over those who are not polled.
    fn call_and_pass_over(order: &mut LocalOrder, number: u64, asked_at: BootInstant, now: BootInstant) {
        order.pass_over(number, LastAsked::at(asked_at), now);
        order.take_rank(number, now);
        let called = LastAsked { at: asked_at, called_at: Some(now) };
        order.pass_over(number, called, now.plus(Duration::from_secs(1)));
    }

    #[test]
    fn a_first_one_that_does_not_ask_is_passed_over_until_the_others_have_gone() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, to_second), (third, to_third)] = entered(&mut order);
        assert_eq!(order.take_rank(first, at(0)), LocalRank::First);
        order.asks(first, at(1));
        call_and_pass_over(&mut order, second, at(0), at(1));
        assert_eq!(order.take_rank(second, at(2)), behind(1, at(1)), "the first one has asked since");
        call_and_pass_over(&mut order, second, at(1), at(4));
        assert!(is_told(&to_second) && is_told(&to_third));
        assert_eq!(order.take_rank(second, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(third, at(5)), behind(1, at(5)));
        // It is polled once, and left alone again: the one that asks is told all the same, and keeps its place until it goes.
        order.asks(first, at(6));
        order.tell_asking();
        assert!(is_told(&to_second));
        order.asks(second, at(7));
        order.leave(second);
        assert!(is_told(&to_third));
        assert_eq!(order.take_rank(third, at(7)), LocalRank::First);
        order.leave(third);
        order.asks(first, at(8));
        assert_eq!(order.take_rank(first, at(8)), LocalRank::First);
    }

    #[test]
    fn whoever_was_passed_over_before_it_knew_that_it_was_the_first_asks_when_it_is_polled() {
        let mut order = LocalOrder::new(at(0));
        let [(first, to_first), (second, _)] = entered(&mut order);
        call_and_pass_over(&mut order, second, at(0), at(4));
        assert!(is_told(&to_first), "it is called");
        assert_eq!(order.take_rank(second, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(first, at(5)), LocalRank::First, "it is polled after all");
        order.tell_asking();
        assert!(is_told(&to_first));
        order.leave(second);
        order.asks(first, at(6));
        order.tell_asking();
        assert!(is_told(&to_first));
        let (third, _) = order.enter(at(6));
        assert_eq!(order.take_rank(third, at(6)), behind(1, at(6)));
    }

    #[test]
    fn those_that_are_not_polled_are_passed_over_together_however_many_they_are() {
        const LEFT: usize = 3 * TOLD_APART;
        let mut order = LocalOrder::new(at(0));
        let left: [_; LEFT] = entered(&mut order);
        let [(next, to_next), (last, _)] = entered(&mut order);
        assert_eq!(order.take_rank(left[0].0, at(0)), LocalRank::First);
        assert_eq!(order.take_rank(left[TOLD_APART - 1].0, at(0)), behind(TOLD_APART - 1, at(0)));
        assert_eq!(order.take_rank(next, at(0)), behind(TOLD_APART, at(0)));
        order.pass_over(last, LastAsked::at(at(0)), at(4));
        assert!(is_told(&to_next) && left.iter().all(|(_, news)| is_told(news)), "everybody is called");
        let called = LastAsked { at: at(0), called_at: Some(at(4)) };
        for (number, ahead) in [(next, TOLD_APART), (last, TOLD_APART)] {
            assert_eq!(order.take_rank(number, at(4)), LocalRank::Behind { ahead, asked: called });
        }
        order.pass_over(last, called, at(5));
        assert!(is_told(&to_next));
        assert_eq!(order.take_rank(next, at(5)), LocalRank::First, "it has answered, and was there before");
        assert_eq!(order.take_rank(last, at(5)), behind(1, at(5)));
    }

    #[test]
    fn those_that_were_passed_over_have_their_places_again_when_they_are_polled() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _), (third, _)] = entered(&mut order);
        call_and_pass_over(&mut order, third, at(0), at(4));
        assert_eq!(order.take_rank(third, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(first, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(second, at(5)), behind(1, at(5)), "one of those that are late is enough");
    }

    #[test]
    fn nobody_is_passed_over_that_has_answered_the_call() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _), (third, _)] = entered(&mut order);
        order.pass_over(third, LastAsked::at(at(0)), at(4));
        let called = LastAsked { at: at(0), called_at: Some(at(4)) };
        assert_eq!(order.take_rank(second, at(4)), LocalRank::Behind { ahead: 1, asked: called });
        order.pass_over(third, LastAsked::at(at(0)), at(5));
        assert_eq!(order.take_rank(third, at(5)), LocalRank::Behind { ahead: 2, asked: called }, "one call is enough");
        order.pass_over(third, called, at(5));
        assert_eq!(order.take_rank(third, at(5)), behind(1, at(5)));
        order.leave(second);
        assert_eq!(order.take_rank(third, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(first, at(5)), LocalRank::First, "it is polled after all");
    }

    #[test]
    fn nobody_is_passed_over_without_a_call_however_late_that_is_seen() {
        let mut order = LocalOrder::new(at(0));
        let [(first, to_first), (second, _)] = entered(&mut order);
        assert_eq!(order.take_rank(first, at(0)), LocalRank::First);
        // The process stood still.
        assert!(!order.pass_over(second, LastAsked::at(at(0)), at(1000)));
        assert!(is_told(&to_first));
        assert_eq!(order.take_rank(first, at(1000)), LocalRank::First);
        let called = LastAsked { at: at(0), called_at: Some(at(1000)) };
        order.pass_over(second, called, at(2000));
        assert_eq!(order.take_rank(second, at(2000)), behind(1, at(2000)), "it has answered");
    }

    #[test]
    fn a_second_one_that_has_become_the_first_passes_nobody_over() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, to_second), (third, to_third)] = entered(&mut order);
        order.leave(first);
        assert!(is_told(&to_second) && is_told(&to_third));
        order.pass_over(second, LastAsked::at(at(0)), at(5));
        assert!(!is_told(&to_third), "it calls nobody");
        assert_eq!(order.take_rank(second, at(5)), LocalRank::First);
        assert_eq!(order.take_rank(third, at(5)), behind(1, at(0)));
    }

    #[test]
    fn whoever_is_behind_is_told_nothing_but_calls() {
        let mut order = LocalOrder::new(at(0));
        let [(first, _), (second, _), (_, to_third), (fourth, to_fourth)] = entered(&mut order);
        order.tell_asking();
        order.leave(fourth);
        assert!(!is_told(&to_third) && !is_told(&to_fourth));
        call_and_pass_over(&mut order, second, at(0), at(5));
        assert!(is_told(&to_third) && !is_told(&to_fourth));
        order.leave(first);
        assert!(!is_told(&to_third), "it was passed over before");
    }
}
