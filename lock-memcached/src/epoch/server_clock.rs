//! Whether the server's clock runs.
//!
//! A server that was paused, with its machine or by a signal, answers for a moment before it notices how much time has
//! passed. What it stores in that moment is stamped with old time and ends too early, by the length of the pause. So every
//! claim and renewal also reads what is left of the epoch, which tells the server's time, and counts only if the server is
//! not behind what it was before. A client that has seen nothing of an epoch, because it was closed before, may meet the
//! server in that moment: nothing counts until it has seen the clock tick.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// Time by which the server's clock may be behind its measure: it counts whole seconds, and makes steps of two. The measure itself
/// may be late by as much as whole seconds and a step take, two seconds. What is stored by a clock that is just not noticed
/// to stand has [`crate::store::values::MARGIN`] for the sum of both.
const TOLERANCE: i64 = 2_500;

/// The answers of two looks that are to show a tick are at most this far apart: between them no standstill fits that is not tolerated.
const TICKS_WITHIN: Duration = Duration::from_millis(1_500);

/// Time for which an observation serves as the measure. Two clocks drift apart by much less than the tolerance meanwhile.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// After so many seconds on its own a clock that is behind runs again: it was put back for good.
const RUNS_AGAIN: i64 = 2;

/// The server's clock, by what was seen of it. All numbers are milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct ServerClock {
    epoch: u64,
    /// The most by which the server's time was ahead of ours, in this span and in the one before.
    ahead: Option<i64>,
    before: Option<i64>,
    since: Option<BootInstant>,
    /// The last look before the clock was seen to tick: the server's time, and when we were answered.
    first: Option<(i64, BootInstant)>,
    is_met_anew: bool,
    /// The server's time when it was first seen to be behind.
    behind_at: Option<i64>,
}

/// One look: what was left of an item that ends at a fixed time, and when we asked and were answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockLook {
    /// The item's epoch: numbers of different items cannot be compared.
    pub(crate) epoch: u64,
    /// The item's rest, in whole seconds.
    pub(crate) left: i64,
    pub(crate) asked: BootInstant,
    pub(crate) answered: BootInstant,
}

impl ServerClock {
    /// Whether looks go over a connection that was just opened, and the first one is a measure.
    pub(crate) fn set_met_anew(&mut self, is: bool) {
        self.is_met_anew = is;
    }

    /// Takes a look, and says whether the clock runs.
    pub(crate) fn runs(&mut self, look: ClockLook) -> bool {
        if self.epoch != look.epoch {
            *self = Self { epoch: look.epoch, is_met_anew: self.is_met_anew, ..Self::default() };
        }
        let time = -look.left.saturating_mul(1000);
        let Some(best) = self.ahead.max(self.before) else { return self.is_seen_to_tick(time, look) };
        if time - milliseconds(look.asked) < best - TOLERANCE {
            let first = *self.behind_at.get_or_insert(time);
            if time - first < RUNS_AGAIN * 1000 {
                return false;
            }
            // It was seen to tick while it was behind.
            *self = Self { epoch: look.epoch, ..Self::default() };
        }
        self.behind_at = None;
        self.measure(time, look);
        true
    }

    /// Takes a look before there is a measure: the second one of two that show a tick is the first one.
    fn is_seen_to_tick(&mut self, time: i64, look: ClockLook) -> bool {
        let before = self.first.replace((time, look.answered));
        let ticks = self.is_met_anew
            || before.is_some_and(|(first, at)| time > first && look.answered.since(at) <= TICKS_WITHIN);
        if ticks {
            self.measure(time, look);
        }
        ticks
    }

    /// Takes a look of which it is known that the clock runs.
    fn measure(&mut self, time: i64, look: ClockLook) {
        if self.since.is_none_or(|since| look.answered.since(since) >= RENEWED_EVERY) {
            (self.before, self.ahead, self.since) = (self.ahead, None, Some(look.answered));
        }
        self.ahead = self.ahead.max(Some(time - milliseconds(look.answered)));
    }
}

fn milliseconds(instant: BootInstant) -> i64 {
    i64::try_from(instant.since_origin().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at `local` ms, when the server's clock says `server` s.
    fn look(local: u64, server: i64) -> ClockLook {
        let asked = BootInstant::from_origin(Duration::from_millis(local));
        ClockLook { epoch: 1, left: 1_000_000 - server, asked, answered: asked.plus(Duration::from_millis(1)) }
    }

    /// A clock that was seen to tick at this local time, in ms.
    fn met(at: i64) -> ServerClock {
        let (mut clock, second) = (ServerClock::default(), at / 1000);
        let asked = BootInstant::from_origin(Duration::from_millis(at.unsigned_abs()));
        for server in [second - 1, second] {
            clock.runs(ClockLook { epoch: 1, left: 1_000_000 - server, asked, answered: asked });
        }
        clock
    }

    #[test]
    fn the_margin_holds_what_the_server_s_seconds_and_an_unnoticed_standstill_take_together() {
        let whole_seconds = 2_000;
        assert!(crate::store::values::MARGIN.as_millis() >= u128::from((whole_seconds + TOLERANCE).unsigned_abs()));
    }

    /// A server that counts seconds from `phase` ms on, late by up to `drift` ms, and stood still from `stopped` to `went_on`.
    struct Server {
        phase: i64,
        drift: i64,
        stopped: i64,
        went_on: i64,
    }

    impl Server {
        /// The server's time when it answers: at the instant at which it goes on it has not caught up yet.
        fn says(&self, at: i64) -> i64 {
            let known = if at == self.went_on { self.stopped } else { at };
            (known - self.phase - self.drift).div_euclid(1000)
        }

        /// The end of an item that is stored at this time with this TTL.
        fn ends(&self, stored: i64, seconds: u32) -> i64 {
            (self.says(stored) + i64::from(seconds)) * 1000 + self.phase
        }

        fn look(&self, asked: i64, answered: i64) -> ClockLook {
            let at = |ms: i64| BootInstant::from_origin(Duration::from_millis(ms.unsigned_abs()));
            ClockLook { epoch: 1, left: 1_000_000 - self.says(answered), asked: at(asked), answered: at(answered) }
        }
    }

    /// Every phase of the server's seconds, of its pause, and of the claim; with looks before at all times, or at one only.
    #[test]
    fn whatever_is_granted_after_a_pause_lasts_as_long_as_its_lease() {
        let (lease, before) = (1000, 100_000);
        let mut granted = 0;
        for (phase, drift) in (0..1000).step_by(50).flat_map(|phase| [(phase, 0), (phase, 1000)]) {
            for (stopped, length) in (0..1000).step_by(50).flat_map(|at| (0..6000).step_by(50).map(move |l| (at, l))) {
                let (stopped, went_on) = (before + stopped, before + stopped + length + 1);
                let server = Server { phase, drift, stopped, went_on };
                for (first, every) in [(before - 3000, 20), (before - 3000, 990)] {
                    let mut clock = ServerClock::default();
                    for at in (first..before).step_by(every) {
                        clock.runs(server.look(at, at));
                    }
                    for asked in (stopped.max(went_on - 4000)..went_on).step_by(50) {
                        if !clock.runs(server.look(asked, went_on)) {
                            continue;
                        }
                        granted += 1;
                        let ends = server.ends(went_on, crate::store::values::seconds(Duration::from_millis(lease)));
                        let believed = asked + i64::try_from(lease).unwrap();
                        assert!(
                            ends >= believed,
                            "phase {phase}, drift {drift}, stopped for {length} ms, asked {} ms before it went on: \
                             the item ended {} ms too early",
                            went_on - asked,
                            believed - ends
                        );
                        break;
                    }
                }
            }
        }
        assert!(granted > 1000, "{granted}");
    }

    /// A client that connects while the server stands has seen nothing of its clock.
    #[test]
    fn nothing_counts_before_the_clock_was_seen_to_tick() {
        let server = Server { phase: 0, drift: 0, stopped: 10_000, went_on: 60_500 };
        let mut clock = ServerClock::default();
        assert!(!clock.runs(server.look(58_000, 60_500)), "a look at a clock that stood for 50 s");
        assert!(!clock.runs(server.look(60_499, 60_500)));
        assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
        let mut late = ServerClock::default();
        let server = Server { phase: 0, drift: 0, stopped: 16_000, went_on: 60_500 };
        assert!(!late.runs(server.look(10_000, 10_001)));
        assert!(!late.runs(server.look(60_400, 60_500)), "it has ticked since, and stood then");
        assert!(!late.runs(server.look(60_500, 60_500)));
        assert!(late.runs(server.look(60_600, 60_601)));
    }

    /// It ticked once after the first look, stood then, and answered the second one when it went on.
    #[test]
    fn a_tick_that_was_answered_late_shows_nothing() {
        let server = Server { phase: 0, drift: 0, stopped: 11_100, went_on: 60_500 };
        let mut clock = ServerClock::default();
        assert!(!clock.runs(server.look(10_500, 10_501)));
        assert!(!clock.runs(server.look(11_050, 60_500)), "it stood for 49 s");
        assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
    }

    #[test]
    fn a_clock_that_ticks_runs() {
        let mut clock = met(0);
        // Late by almost a second at each tick, and with a step of two now and then.
        for local in 0..200_000 {
            let server = i64::try_from(local / 1000).unwrap() - i64::from(local % 50_000 > 49_000);
            assert!(clock.runs(look(local, server)), "at {local} ms");
        }
    }

    #[test]
    fn a_clock_that_stood_still_is_behind_until_it_catches_up() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(14_000, 10)), "four seconds are missing");
        assert!(!clock.runs(look(14_005, 10)));
        assert!(clock.runs(look(14_010, 14)));
        assert!(clock.runs(look(15_500, 15)));
    }

    #[test]
    fn a_clock_that_was_put_back_for_good_is_believed_when_it_runs() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(look(40_000, 11)));
        assert!(!clock.runs(look(41_000, 12)));
        assert!(clock.runs(look(42_000, 13)));
        assert!(clock.runs(look(43_000, 14)));
        assert!(!clock.runs(look(48_000, 15)), "and is the measure from then on");
    }

    #[test]
    fn a_long_drift_is_no_standstill() {
        let mut clock = met(0);
        // Slower than ours by 0.1 %: a second in a thousand.
        for second in 0..20_000 {
            let server = i64::try_from(second - second / 1000).unwrap();
            assert!(clock.runs(look(second * 1000, server)), "after {second} s");
        }
    }

    #[test]
    fn numbers_of_another_epoch_are_not_compared() {
        let mut clock = met(10_000);
        assert!(clock.runs(look(10_000, 10)));
        assert!(!clock.runs(ClockLook { epoch: 2, ..look(11_000, -500) }));
        assert!(clock.runs(ClockLook { epoch: 2, ..look(11_020, -499) }));
    }
}
