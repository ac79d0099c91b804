//! Rights of which a client has a fixed number, such as those to have a connection in use.
//!
//! A right is given for steps that end by a known instant, and is released when it is dropped. A call on a runtime that nobody drives any
//! more neither ends nor is dropped, and would keep its right for ever. So a right that has not come back a moment after its end is given
//! to the next caller, and so is one that was handed to a waiter which does not pick it up.
//! A renewal of leases is handed a right before all others that wait, however many they are: a lease ends if it is renewed too late.
//!
//! The ledger says which ones are given until when, and who waits for one. It decides without a clock, a lock or a task: each event
//! comes with its instant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::oneshot;

/// The time by which steps may end late on a busy machine, and in which a right that was handed over is picked up.
const LATE: Duration = Duration::from_millis(500);

/// The order among those that wait, before the order of their coming.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    /// Leases are renewed.
    Renewal,
    Usual,
}

/// The rights of one client.
#[derive(Debug)]
pub(crate) struct Rights(Mutex<RightsLedger<oneshot::Sender<Given>>>);

/// One right, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Right<'a> {
    rights: &'a Rights,
    given: Given,
}

impl Rights {
    pub(crate) fn new(many: usize) -> Self {
        Self(Mutex::new(RightsLedger::new(many)))
    }

    /// The number of those that are given.
    pub(super) fn given(&self) -> usize {
        self.ledger().given()
    }

    /// Returns a right for steps that end by `until`, if one is free.
    pub(crate) fn at_once(&self, until: BootInstant) -> Option<Right<'_>> {
        let given = self.ledger().asks(SystemClock.now(), until)?;
        Some(Right { rights: self, given })
    }

    /// Waits for a right for steps that end by `until`, in the order of precedence, and in that in which they were asked for; `None` if
    /// none is free by then.
    pub(crate) async fn one(&self, until: BootInstant, precedence: Precedence) -> Option<Right<'_>> {
        match self.at_once(until) {
            Some(right) => Some(right),
            // Not a part of every request's future.
            None => Box::pin(self.waits(until, precedence)).await,
        }
    }

    async fn waits(&self, until: BootInstant, precedence: Precedence) -> Option<Right<'_>> {
        let (wake, handed) = oneshot::channel();
        let place = self.ledger().waits(until, precedence, wake);
        let mut stay = Stay { rights: self, place, handed };
        loop {
            // Asked for once it waits: what comes back from here on is handed to it.
            if SystemClock.now() >= until {
                return None;
            }
            if let Some(right) = self.at_once(until) {
                return Some(right);
            }
            let again_at = self.ledger().asks_again_at(SystemClock.now(), until);
            tokio::select! {
                biased;
                handed = &mut stay.handed => {
                    let given = handed.ok().and_then(|handed| self.ledger().picks_up(handed, until));
                    if let Some(given) = given {
                        let right = Right { rights: self, given };
                        return (SystemClock.now() < until).then_some(right);
                    }
                    // Too late.
                    let (wake, handed) = oneshot::channel();
                    stay.handed = handed;
                    self.ledger().waits_at(place, until, wake);
                }
                () = SystemClock.sleep_until(again_at) => {}
            }
        }
    }

    fn returns(&self, given: Given) {
        let mut back = given;
        loop {
            let next = self.ledger().returns(back, SystemClock.now());
            let Some((wake, handed)) = next else { return };
            match wake.send(handed) {
                Ok(()) => return,
                // It has just left.
                Err(handed) => back = handed,
            }
        }
    }

    fn ledger(&self) -> MutexGuard<'_, RightsLedger<oneshot::Sender<Given>>> {
        // Every critical section leaves it valid after each statement.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stay of one that waits.
struct Stay<'a> {
    rights: &'a Rights,
    place: WaitingPlace,
    handed: oneshot::Receiver<Given>,
}

impl Drop for Stay<'_> {
    fn drop(&mut self) {
        self.rights.ledger().leaves(self.place);
        self.handed.close();
        if let Ok(handed) = self.handed.try_recv() {
            self.rights.returns(handed);
        }
    }
}

impl Right<'_> {
    /// Keeps it for steps that end by `until`, unless it was overdue and is another's.
    pub(super) fn lasts(&mut self, until: BootInstant) {
        if let Some(given) = self.rights.ledger().picks_up(self.given, until) {
            self.given = given;
        }
    }

    /// The number of those that others have.
    pub(super) fn besides(&self) -> usize {
        self.rights.ledger().given_besides(self.given)
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        self.rights.returns(self.given);
    }
}

/// The number of a right that was given, or of a waiter: each has another one, and a greater one than those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u64);

/// The place of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WaitingPlace {
    precedence: Precedence,
    number: Number,
}

/// A right that was given: the end of its steps, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Given {
    end: BootInstant,
    number: Number,
}

/// The rights that are given, and those who wait for one. `W` wakes a waiter.
#[derive(Debug)]
struct RightsLedger<W> {
    most: usize,
    last: u64,
    given: BTreeSet<Given>,
    /// The waiters, and until when each waits. Whoever begins to while a right is free asks once more at once.
    waiting: BTreeMap<WaitingPlace, (BootInstant, W)>,
}

impl<W> RightsLedger<W> {
    fn new(most: usize) -> Self {
        Self { most, last: 0, given: BTreeSet::new(), waiting: BTreeMap::new() }
    }

    /// The number of those that are given, this one not counted.
    fn given_besides(&self, own: Given) -> usize {
        self.given.len() - usize::from(self.given.contains(&own))
    }

    /// The number of those that are given.
    fn given(&self) -> usize {
        self.given.len()
    }

    /// Gives a right for steps that end by `until`, if one is free, or overdue.
    ///
    /// An overdue right goes to whoever asks, and not to the first one that waits: that one may be polled as little as whoever
    /// kept it.
    fn asks(&mut self, now: BootInstant, until: BootInstant) -> Option<Given> {
        if self.given.len() >= self.most {
            self.given.first().filter(|first| first.is_overdue(now))?;
            self.given.pop_first();
        }
        let number = self.next_number();
        Some(self.gives(number, until))
    }

    /// Adds a waiter. Returns its place.
    fn waits(&mut self, until: BootInstant, precedence: Precedence, wake: W) -> WaitingPlace {
        let place = WaitingPlace { precedence, number: self.next_number() };
        self.waits_at(place, until, wake);
        place
    }

    /// Puts a waiter back at the place that it had before.
    fn waits_at(&mut self, place: WaitingPlace, until: BootInstant, wake: W) {
        self.waiting.insert(place, (until, wake));
    }

    /// Removes a waiter.
    fn leaves(&mut self, place: WaitingPlace) {
        self.waiting.remove(&place);
    }

    /// A right is released, unless it was overdue and is another's. Returns who is to be handed it: the first one that waits.
    fn returns(&mut self, given: Given, now: BootInstant) -> Option<(W, Given)> {
        if !self.given.remove(&given) {
            return None;
        }
        loop {
            let (place, (until, wake)) = self.waiting.pop_first()?;
            // Who has no time left finds that out by itself.
            if now < until {
                // For so long as it takes to be picked up.
                return Some((wake, self.gives(place.number, now)));
            }
        }
    }

    /// A right that was handed over is picked up, for steps that end by `until`; nothing if it was overdue and is another's.
    fn picks_up(&mut self, handed: Given, until: BootInstant) -> Option<Given> {
        self.given.remove(&handed).then(|| self.gives(handed.number, until))
    }

    /// The instant at which who waits until then asks again. One may be handed over meanwhile and not be picked up.
    fn asks_again_at(&self, now: BootInstant, until: BootInstant) -> BootInstant {
        let next = now.plus(LATE).min(until);
        self.given.first().map_or(next, |first| next.min(first.end.plus(LATE)))
    }

    fn gives(&mut self, number: Number, end: BootInstant) -> Given {
        let given = Given { end, number };
        self.given.insert(given);
        given
    }

    fn next_number(&mut self) -> Number {
        self.last += 1;
        Number(self.last)
    }
}

impl Given {
    fn is_overdue(self, now: BootInstant) -> bool {
        now >= self.end.plus(LATE)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::Precedence::{Renewal, Usual};
    use super::*;

    fn soon(ms: u64) -> BootInstant {
        SystemClock.now().plus(Duration::from_millis(ms))
    }

    #[tokio::test]
    async fn what_is_not_released_in_time_is_given_to_the_next_one() {
        let rights = Rights::new(1);
        let first = rights.one(soon(10), Usual).await.unwrap();
        assert!(rights.one(soon(20), Usual).await.is_none(), "there is one only");
        let second = rights.one(soon(30_000), Usual).await.expect("it was kept beyond its end");
        assert_eq!(rights.given(), 1);
        drop(first);
        assert_eq!(rights.given(), 1, "it was taken back before");
        drop(second);
        assert_eq!(rights.given(), 0);
    }

    /// Polls a future once.
    async fn begin<F: Future + Unpin>(waits: &mut F) {
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut *waits).poll(cx))).await.is_pending());
    }

    #[tokio::test]
    async fn what_came_back_just_before_the_wait_is_given_at_once() {
        let rights = Rights::new(1);
        let mut waits = Box::pin(rights.waits(soon(30_000), Usual));
        let looked = std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx))).await;
        assert!(looked.is_ready());
    }

    #[tokio::test]
    async fn who_has_no_time_left_is_given_none() {
        let rights = Rights::new(1);
        let first = rights.one(soon(30_000), Usual).await.unwrap();
        let mut late = Box::pin(rights.one(soon(20), Usual));
        begin(&mut late).await;
        // It is handed over in time, and picked up too late.
        drop(first);
        std::thread::sleep(Duration::from_millis(30));
        assert!(late.await.is_none());
        assert_eq!(rights.given(), 0);
    }

    #[tokio::test]
    async fn who_is_never_polled_again_keeps_no_right_from_those_behind() {
        let rights = Rights::new(1);
        let first = rights.one(soon(30_000), Usual).await.unwrap();
        let mut left: Vec<_> = (0..3).map(|_| Box::pin(rights.one(soon(30_000), Usual))).collect();
        for waits in &mut left {
            begin(waits).await;
        }
        let mut driven = Box::pin(rights.one(soon(20_000), Usual));
        begin(&mut driven).await;
        drop(first);
        driven.await.expect("it is kept for those that nobody polls");
    }

    #[tokio::test]
    async fn what_is_released_goes_to_whoever_waits_and_to_nobody_who_has_left() {
        let rights = Rights::new(1);
        let first = rights.one(soon(30_000), Usual).await.unwrap();
        let [mut leaves, mut waits] = [(); 2].map(|()| Box::pin(rights.one(soon(30_000), Usual)));
        begin(&mut leaves).await;
        begin(&mut waits).await;
        drop(first);
        assert_eq!(rights.given(), 1, "it was handed over");
        drop(leaves);
        drop(waits.await.expect("it was handed to one that has left"));
        assert_eq!(rights.given(), 0);
    }

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
        let [_, left, _] = ["a", "b", "c"].map(|wake| ledger.waits(at(4000), Usual, wake));
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
    fn whoever_renews_leases_is_before_all_others_that_wait() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(2000)).unwrap();
        ledger.waits(at(4000), Usual, "a");
        ledger.waits(at(4000), Renewal, "renews");
        let place = ledger.waits(at(4000), Renewal, "renews later");
        let (first_wake, handed) = ledger.returns(first, at(100)).unwrap();
        let (second_wake, handed) = ledger.returns(handed, at(200)).unwrap();
        assert_eq!((first_wake, second_wake), ("renews", "renews later"));
        // It was not picked up in time, and has its place again.
        ledger.waits_at(place, at(4000), "renews later");
        assert_eq!(ledger.returns(handed, at(300)).map(|(wake, _)| wake), Some("renews later"));
    }

    #[test]
    fn what_is_overdue_goes_to_whoever_asks_and_comes_back_once() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(1000)).unwrap();
        ledger.waits(at(9000), Usual, "is not polled");
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
        let place = ledger.waits(at(9000), Usual, "slow");
        let (_, handed) = ledger.returns(first, at(1000)).unwrap();
        assert_eq!(ledger.asks_again_at(at(1000), at(9000)), at(1500));
        let second = ledger.asks(at(1500), at(9000)).unwrap();
        assert_eq!(ledger.picks_up(handed, at(9000)), None);
        ledger.waits(at(9000), Usual, "later");
        ledger.waits_at(place, at(9000), "slow");
        assert_eq!(ledger.returns(second, at(1600)).map(|(wake, _)| wake), Some("slow"), "it has its place again");
    }

    #[test]
    fn who_has_no_time_left_is_handed_nothing() {
        let mut ledger = ledger(1);
        let first = ledger.asks(at(0), at(9000)).unwrap();
        ledger.waits(at(500), Usual, "ended");
        ledger.waits(at(2000), Usual, "waits");
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
