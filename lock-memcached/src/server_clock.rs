//! Whether the server's clock runs.
//!
//! A server that was paused, with its machine or by a signal, answers for a moment before it notices how much time has
//! passed. What it stores in that moment is stamped with old time and ends too early, by the length of the pause. So every
//! claim and renewal also reads what is left of the epoch, which tells the server's time, and counts only if the server is
//! not behind what it was before.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// How far behind the server's clock may be: it counts whole seconds, and makes steps of two. What is stored by a clock that
/// is just not noticed to stand has [`crate::wire::MARGIN`] for it.
const TOLERANCE: i64 = 2_500;

/// For how long an observation serves as the measure. Two clocks drift apart by much less than the tolerance meanwhile.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// After so many seconds on its own a clock that is behind runs again: it was put back for good.
const RUNS_AGAIN: i64 = 2;

/// The server's clock, by what was seen of it. All numbers are milliseconds.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    epoch: u64,
    /// By how much the server's time was ahead of ours, at most, in this span and in the one before.
    ahead: Option<i64>,
    before: Option<i64>,
    since: Option<BootInstant>,
    /// The server's time when it was first seen to be behind.
    behind_at: Option<i64>,
}

/// One look: what was left of an item that ends at a fixed time, and when we asked and were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// The item's epoch: numbers of different items cannot be compared.
    pub(crate) epoch: u64,
    /// What is left of it, in whole seconds.
    pub(crate) left: i64,
    pub(crate) asked: BootInstant,
    pub(crate) answered: BootInstant,
}

impl ServerClock {
    /// Takes a look, and says whether the clock runs.
    pub(crate) fn runs(&mut self, look: Look) -> bool {
        if self.epoch != look.epoch {
            *self = Self { epoch: look.epoch, ..Self::default() };
        }
        let time = -look.left.saturating_mul(1000);
        let best = self.ahead.max(self.before);
        if best.is_some_and(|best| time - milliseconds(look.asked) < best - TOLERANCE) {
            let first = *self.behind_at.get_or_insert(time);
            if time - first < RUNS_AGAIN * 1000 {
                return false;
            }
            *self = Self { epoch: look.epoch, ..Self::default() };
        }
        self.behind_at = None;
        if self.since.is_none_or(|since| look.answered.since(since) >= RENEWED_EVERY) {
            (self.before, self.ahead, self.since) = (self.ahead, None, Some(look.answered));
        }
        self.ahead = self.ahead.max(Some(time - milliseconds(look.answered)));
        true
    }
}

fn milliseconds(instant: BootInstant) -> i64 {
    i64::try_from(instant.since_origin().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at `local` ms, when the server's clock says `server` s.
    fn look(local: u64, server: i64) -> Look {
        let asked = BootInstant::from_origin(Duration::from_millis(local));
        Look { epoch: 1, left: 1_000_000 - server, asked, answered: asked.plus(Duration::from_millis(1)) }
    }

    #[test]
    fn a_lease_outlasts_its_item_by_no_clock_that_is_believed() {
        assert!(crate::wire::MARGIN.as_millis() > u128::from(TOLERANCE.unsigned_abs()));
    }

    #[test]
    fn a_clock_that_ticks_runs() {
        let mut clock = ServerClock::default();
        // Late by almost a second at each tick, and with a step of two now and then.
        for local in 0..200_000 {
            let server = i64::try_from(local / 1000).unwrap() - i64::from(local % 50_000 > 49_000);
            assert!(clock.runs(look(local, server)), "at {local} ms");
        }
    }

    #[test]
    fn a_clock_that_stood_still_is_behind_until_it_catches_up() {
        let mut clock = ServerClock::default();
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(14_000, 10)), "four seconds are missing");
        assert!(!clock.runs(look(14_005, 10)));
        assert!(clock.runs(look(14_010, 14)));
        assert!(clock.runs(look(15_500, 15)));
    }

    #[test]
    fn a_clock_that_was_put_back_for_good_is_believed_when_it_runs() {
        let mut clock = ServerClock::default();
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(40_000, 11)));
        assert!(!clock.runs(look(41_000, 12)));
        assert!(clock.runs(look(42_000, 13)));
        assert!(clock.runs(look(43_000, 14)));
        assert!(!clock.runs(look(48_000, 15)), "and is the measure from then on");
    }

    #[test]
    fn a_long_drift_is_no_standstill() {
        let mut clock = ServerClock::default();
        // Slower than ours by 0.1 %: a second in a thousand.
        for second in 0..20_000 {
            let server = i64::try_from(second - second / 1000).unwrap();
            assert!(clock.runs(look(second * 1000, server)), "after {second} s");
        }
    }

    #[test]
    fn numbers_of_another_epoch_are_not_compared() {
        let mut clock = ServerClock::default();
        assert!(clock.runs(look(10_000, 10)));
        assert!(clock.runs(Look { epoch: 2, ..look(11_000, -500) }));
    }
}
