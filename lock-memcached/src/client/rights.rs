//! Rights of which a client has a fixed number, such as those to have a connection in use.
//!
//! A right is given for steps that end by a known instant. Whoever has it releases it when it is dropped. A call on a runtime
//! that nobody drives any more does neither, and would keep it for ever: what has not come back a moment after its end is given
//! to the next one that asks, and so is what was handed to a waiter that does not pick it up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::oneshot;

use super::rights_ledger::{Given, Place, RightsLedger};

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

    /// Waits for a right for steps that end by `until`, in the order in which they were asked for; `None` if none is free by then.
    pub(super) async fn one(&self, until: BootInstant) -> Option<Right<'_>> {
        match self.at_once(until) {
            Some(right) => Some(right),
            // Not a part of every request's future.
            None => Box::pin(self.waits(until)).await,
        }
    }

    async fn waits(&self, until: BootInstant) -> Option<Right<'_>> {
        let (wake, handed) = oneshot::channel();
        let place = self.ledger().waits(until, wake);
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
    place: Place,
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::time::Duration;

    use super::*;

    fn soon(ms: u64) -> BootInstant {
        SystemClock.now().plus(Duration::from_millis(ms))
    }

    #[tokio::test]
    async fn what_is_not_released_in_time_is_given_to_the_next_one() {
        let rights = Rights::new(1);
        let first = rights.one(soon(10)).await.unwrap();
        assert!(rights.one(soon(20)).await.is_none(), "there is one only");
        let second = rights.one(soon(30_000)).await.expect("it was kept beyond its end");
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
        let mut waits = Box::pin(rights.waits(soon(30_000)));
        let looked = std::future::poll_fn(|cx| std::task::Poll::Ready(waits.as_mut().poll(cx))).await;
        assert!(looked.is_ready());
    }

    #[tokio::test]
    async fn who_has_no_time_left_is_given_none() {
        let rights = Rights::new(1);
        let first = rights.one(soon(30_000)).await.unwrap();
        let mut late = Box::pin(rights.one(soon(20)));
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
        let first = rights.one(soon(30_000)).await.unwrap();
        let mut left: Vec<_> = (0..3).map(|_| Box::pin(rights.one(soon(30_000)))).collect();
        for waits in &mut left {
            begin(waits).await;
        }
        let mut driven = Box::pin(rights.one(soon(20_000)));
        begin(&mut driven).await;
        drop(first);
        driven.await.expect("it is kept for those that nobody polls");
    }

    #[tokio::test]
    async fn what_is_released_goes_to_whoever_waits_and_to_nobody_who_has_left() {
        let rights = Rights::new(1);
        let first = rights.one(soon(30_000)).await.unwrap();
        let [mut leaves, mut waits] = [(); 2].map(|()| Box::pin(rights.one(soon(30_000))));
        begin(&mut leaves).await;
        begin(&mut waits).await;
        drop(first);
        assert_eq!(rights.given(), 1, "it was handed over");
        drop(leaves);
        drop(waits.await.expect("it was handed to one that has left"));
        assert_eq!(rights.given(), 0);
    }
}
