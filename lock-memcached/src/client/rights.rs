//! The rights to have connections in use, of which a client has a fixed number.
//!
//! A right is given for steps that end by a known instant. Whoever has it gives it back when it is dropped. A call on a runtime
//! that nobody drives any more does neither, and would keep it for ever: what has not come back a moment after its end is given
//! to the next one.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::Semaphore;

/// The time by which steps may end late on a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// The rights of one client.
#[derive(Debug)]
pub(super) struct Rights {
    free: Semaphore,
    given: Mutex<Given>,
}

/// The rights that are in use: one entry each.
#[derive(Debug, Default)]
struct Given {
    last: u64,
    ends: BTreeSet<(BootInstant, u64)>,
}

/// One right, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Right<'a> {
    rights: &'a Rights,
    given: (BootInstant, u64),
}

impl Rights {
    pub(super) fn new(many: usize) -> Self {
        Self { free: Semaphore::new(many), given: Mutex::default() }
    }

    /// The number of those that nobody has.
    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// One for steps that end by `until`, in the order in which they were asked for; `None` if none is free by then.
    pub(super) async fn one(&self, until: BootInstant) -> Option<Right<'_>> {
        let mut free = pin!(self.free.acquire());
        loop {
            let overdue = self.given().ends.first().map_or(until, |(end, _)| end.plus(LATE));
            tokio::select! {
                biased;
                permit = &mut free => {
                    // The semaphore is never closed.
                    permit.ok()?.forget();
                    return Some(self.give(until));
                }
                () = SystemClock.sleep_until(until.min(overdue)) => {}
            }
            let now = SystemClock.now();
            if !self.take_back(now) && now >= until {
                return None;
            }
        }
    }

    fn give(&self, until: BootInstant) -> Right<'_> {
        let mut given = self.given();
        given.last += 1;
        let entry = (until, given.last);
        given.ends.insert(entry);
        drop(given);
        Right { rights: self, given: entry }
    }

    /// Takes back those that are overdue; whether there was one.
    fn take_back(&self, now: BootInstant) -> bool {
        let mut taken = 0;
        let mut given = self.given();
        while given.ends.first().is_some_and(|(end, _)| now >= end.plus(LATE)) {
            given.ends.pop_first();
            taken += 1;
        }
        drop(given);
        self.free.add_permits(taken);
        taken > 0
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Right<'_> {
    fn drop(&mut self) {
        // Unless it was taken back.
        if self.rights.given().ends.remove(&self.given) {
            self.rights.free.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon(ms: u64) -> BootInstant {
        SystemClock.now().plus(Duration::from_millis(ms))
    }

    #[tokio::test]
    async fn what_is_not_given_back_in_time_is_given_to_the_next_one() {
        let rights = Rights::new(1);
        let first = rights.one(soon(10)).await.unwrap();
        assert!(rights.one(soon(20)).await.is_none(), "there is one only");
        let second = rights.one(soon(30_000)).await.expect("it was kept beyond its end");
        assert_eq!(rights.free(), 0);
        drop(first);
        assert_eq!(rights.free(), 0, "it was taken back before");
        drop(second);
        assert_eq!(rights.free(), 1);
        assert!(rights.given().ends.is_empty());
    }

    #[tokio::test]
    async fn what_is_given_back_in_time_is_not_taken_back() {
        let rights = Rights::new(2);
        let (one, two) = (rights.one(soon(30_000)).await.unwrap(), rights.one(soon(30_000)).await.unwrap());
        assert!(!rights.take_back(soon(30_000)), "steps may end a little late");
        drop((one, two));
        assert!(!rights.take_back(soon(60_000)));
        assert_eq!(rights.free(), 2);
    }
}
