//! The pauses between attempts to connect: none after a connection that was of use, growing ones while none is.

use std::fmt;
use std::time::Duration;

use lock_core::driver::wait;

/// The first pause between two attempts, and the longest before jitter, which at most doubles it: a server that is back
/// is found within a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The time that a connection has to last to be of use. One that ends at once is an attempt that failed.
const OF_USE: Duration = Duration::from_secs(1);

/// The pauses before the attempts of one connection.
pub(super) struct Pace {
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
    is_first: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pauses: Box::new(wait::pauses(FIRST_PAUSE, LONGEST_PAUSE)), is_first: true }
    }
}

impl Pace {
    /// No pause before the first attempt, and this one before each other.
    #[cfg(test)]
    pub(super) fn of(pause: Duration) -> Self {
        Self { pauses: Box::new(std::iter::repeat(pause)), is_first: true }
    }

    /// The pause before the next attempt.
    pub(super) fn pause(&mut self) -> Duration {
        if std::mem::take(&mut self.is_first) {
            return Duration::ZERO;
        }
        // The pauses never end.
        self.pauses.next().unwrap_or(LONGEST_PAUSE)
    }

    /// Takes note that a connection has ended, and for how long it had lasted.
    pub(super) fn ended_after(&mut self, lasted: Duration) {
        if lasted >= OF_USE {
            *self = Self::default();
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace").field("is_first", &self.is_first).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_of_use_is_replaced_at_once_and_one_that_was_not_after_growing_pauses() {
        let mut pace = Pace::default();
        assert!(pace.pause().is_zero());
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            pace.ended_after(Duration::from_millis(10));
            last = pace.pause();
            assert!(!last.is_zero() && last <= LONGEST_PAUSE * 2, "{last:?}");
        }
        assert!(last >= LONGEST_PAUSE);
        pace.ended_after(OF_USE);
        assert!(pace.pause().is_zero());
    }
}
