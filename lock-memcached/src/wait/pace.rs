//! Pace at which the waiters of one client ask, whatever they wait for and however many they are.
//!
//! A waiter looks at one key for a mutex, and at several for a lock of several keys. All waiters of a client together look at
//! no more than [`LOOKS_PER_SECOND`] keys in a second: the more there are, the longer each of them pauses. One whose look was not answered
//! pauses for a part of its patience at most, and one that has to renew what it has at the server, a writer that waits for readers, for a
//! part of its TTL: [`Turns::pause_by_pace`](super::turns::Turns::pause_by_pace).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// So many keys are looked at in a second at most, when all waiters have settled down.
const LOOKS_PER_SECOND: u64 = 2_000;

/// The keys at which a client's waiters look, in all.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

/// One waiter's part of the looks, until it is dropped.
#[derive(Debug)]
pub(crate) struct PaceShare<'a> {
    pace: &'a Pace,
    keys: AtomicU32,
}

impl Pace {
    pub(crate) fn share(&self) -> PaceShare<'_> {
        PaceShare { pace: self, keys: AtomicU32::new(0) }
    }
}

impl PaceShare<'_> {
    /// Looks at so many keys from now on; how long to pause between two looks at least.
    pub(crate) fn pause(&self, keys: u32) -> Duration {
        let before = self.keys.swap(keys, Ordering::Relaxed);
        let all = self.pace.0.fetch_add(keys.into(), Ordering::Relaxed) + u64::from(keys);
        self.pace.0.fetch_sub(before.into(), Ordering::Relaxed);
        Duration::from_micros(all.saturating_sub(before.into()) * 1_000_000 / LOOKS_PER_SECOND)
    }
}

impl Drop for PaceShare<'_> {
    fn drop(&mut self) {
        self.pace.0.fetch_sub(self.keys.load(Ordering::Relaxed).into(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_keys_are_looked_at_the_longer_each_waiter_pauses() {
        let pace = Pace::default();
        let (one, many) = (pace.share(), pace.share());
        assert_eq!(one.pause(1), Duration::from_micros(500));
        assert_eq!(many.pause(9_999), Duration::from_secs(5));
        assert_eq!(one.pause(1), Duration::from_secs(5));
        assert_eq!(many.pause(1), Duration::from_millis(1));
        drop(many);
        assert_eq!(one.pause(1), Duration::from_micros(500));
        drop(one);
        assert_eq!(pace.0.into_inner(), 0);
    }
}
