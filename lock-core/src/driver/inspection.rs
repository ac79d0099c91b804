//! An operator's view of a lock.

use std::time::Duration;

use serde::Serialize;

use crate::owner::{GrantId, Owner};

/// The state of one lock, as the server sees it at one instant.
///
/// At most [`Inspection::MOST`] holders and as many waiters are listed, so that a look at a crowded lock does not hold up its
/// server; the others are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The holders; empty if it is free. If there are too many, any of them may be missing.
    pub holders: Vec<Holder>,
    /// The waiters, first in the queue first.
    pub waiters: Vec<Waiter>,
    /// The number of holders that are not listed. One whose lease has ended may be among them for a moment.
    pub more_holders: u64,
    /// The number of waiters that are not listed.
    pub more_waiters: u64,
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The grant, as [`force_release`](crate::Mutex::force_release) takes it; `None` for a client of another library.
    pub grant: Option<GrantId>,
    /// The owner that holds the lock; `None` for a client of another library.
    pub owner: Option<Owner>,
    /// The grant's token.
    pub token: Option<u64>,
    /// Permits held; 1 for every kind but the semaphore.
    pub permits: u32,
    /// Whether others may hold it too (a reader, a permit).
    pub shared: bool,
    /// The time for which the lock has been held, by the server's clock.
    pub held_for: Option<Duration>,
    /// The time after which the server frees the lock if it hears nothing more; `None` if never.
    pub expires_in: Option<Duration>,
}

/// One request in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiter {
    /// The identity of the attempt.
    pub attempt: GrantId,
    /// The owner that waits, where the server knows it.
    pub owner: Option<Owner>,
    /// Permits asked for; 1 for every kind but the semaphore.
    pub permits: u32,
    /// The time for which the request has been waiting, by the server's clock.
    pub waiting_for: Option<Duration>,
}

impl Holder {
    /// A holder of which nothing is known but that it holds; backends fill in what they know.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { grant: None, owner: None, token: None, permits: 1, shared: false, held_for: None, expires_in: None }
    }
}

impl Waiter {
    /// A waiter of which only the attempt is known.
    #[must_use]
    pub const fn new(attempt: GrantId) -> Self {
        Self { attempt, owner: None, permits: 1, waiting_for: None }
    }
}

impl Inspection {
    /// The number of holders that are listed at most, and of waiters.
    pub const MOST: usize = 500;

    /// The number of holders, listed or not.
    #[must_use]
    pub fn holder_count(&self) -> u64 {
        self.more_holders.saturating_add(self.holders.len() as u64)
    }

    /// The number of waiters, listed or not.
    #[must_use]
    pub fn waiter_count(&self) -> u64 {
        self.more_waiters.saturating_add(self.waiters.len() as u64)
    }

    /// Shortens the lists to [`MOST`](Self::MOST), and counts the others.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.more_holders = self.more_holders.saturating_add(cut(&mut self.holders));
        self.more_waiters = self.more_waiters.saturating_add(cut(&mut self.waiters));
        self
    }

    /// Whether nobody holds the lock.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.holder_count() == 0
    }
}

/// Shortens a list to what is listed at most, and returns by how much.
fn cut<T>(list: &mut Vec<T>) -> u64 {
    let more = list.len().saturating_sub(Inspection::MOST);
    list.truncate(Inspection::MOST);
    more as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_counted() {
        let mut seen = Inspection::default();
        assert!(seen.is_free());
        seen.holders = vec![Holder::unknown(); Inspection::MOST + 5];
        seen.waiters = vec![Waiter::new(GrantId::random().unwrap()); Inspection::MOST];
        seen.more_waiters = 7;
        let bounded = seen.clone().bounded();
        assert_eq!((bounded.holders.len(), bounded.more_holders), (Inspection::MOST, 5));
        assert_eq!((bounded.waiters.len(), bounded.more_waiters), (Inspection::MOST, 7));
        let counted = Inspection { more_holders: u64::MAX, ..seen.clone() };
        assert_eq!(counted.bounded().more_holders, u64::MAX, "a server may say anything");
        for seen in [seen, bounded] {
            assert_eq!((seen.holder_count(), seen.waiter_count()), (505, 507));
            assert!(!seen.is_free());
        }
    }
}
