//! Looks of waiters of their own accord: how often, however many wait.
//!
//! A waiter looks now and then although it watches, because an event may be lost, and instead of watching when there is no room
//! for one more watch. All waiters of a session together look [`POLLS_PER_SECOND`] times in a second at most: the more there
//! are, the longer each of them pauses. So beyond 1,000 waiters an event that is lost may cost more than a second: with n of
//! them, up to n / 1,000 s.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::driver::wait;

/// So many looks there are in a second at most, when all waiters have settled down.
const POLLS_PER_SECOND: u32 = 2_000;

/// The waiters of one session.
#[derive(Debug, Default)]
pub(crate) struct Pollers(AtomicU32);

/// One waiter, until it is dropped.
#[derive(Debug)]
pub(crate) struct Poller<'a>(&'a Pollers);

impl Pollers {
    /// Counts one waiter more.
    pub(crate) fn begin(&self) -> Poller<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Poller(self)
    }

    /// The pause of one that is counted, before it looks again: of this length unless there are too many waiters for it. Then chance spreads
    /// them.
    pub(super) fn pause(&self, usual: Duration) -> Duration {
        let least = Duration::from_secs(1) * self.0.load(Ordering::Relaxed) / POLLS_PER_SECOND;
        // The sequence is endless.
        if least <= usual { usual } else { wait::pauses(least, least).next().unwrap_or(least) }
    }
}

impl Poller<'_> {
    /// The [pause](Pollers::pause) before its next look.
    pub(crate) fn pause(&self, usual: Duration) -> Duration {
        self.0.pause(usual)
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_wait_the_longer_each_one_pauses() {
        let (pollers, usual) = (Pollers::default(), Duration::from_millis(500));
        let few: Vec<_> = (0..1_000).map(|_| pollers.begin()).collect();
        assert_eq!(few[0].pause(usual), usual);
        let many: Vec<_> = (0..9_000).map(|_| pollers.begin()).collect();
        let (least, most) = (Duration::from_secs(5), Duration::from_secs(10));
        assert!(many.iter().all(|one| (least..=most).contains(&one.pause(usual))));
        drop(many);
        assert_eq!(few[0].pause(usual), usual);
        drop(few);
        assert_eq!(pollers.0.into_inner(), 0);
    }
}
