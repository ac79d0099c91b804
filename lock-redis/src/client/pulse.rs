//! The signs of life of one connection: when a request that got no answer says that the connection is dead.
//!
//! A request that had no time left says nothing: its answer may be on its way. One that waited for most of its time on
//! this connection says that it is dead, unless anything at all was answered meanwhile. Pure: told of answers and timeouts,
//! with their instants.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// A silence has to be of this length at least to say that a connection is dead. Short leases have no time for a longer
/// one.
const LONG_SILENCE: Duration = Duration::from_millis(500);

/// A timeout that is noticed this much too late says nothing about the connection: this process stood still, and the answer
/// may have been there in time.
pub(super) const STOOD_STILL: Duration = Duration::from_millis(100);

/// The last answer on a connection, and the time of its round trips.
#[derive(Debug)]
pub(super) struct Pulse {
    answered_at: BootInstant,
    round_trip: Duration,
    silence: Duration,
}

impl Pulse {
    /// The pulse of a connection that has just answered a request of `sent_at`, and whose requests have `op_timeout` at
    /// most.
    pub(super) fn new(sent_at: BootInstant, now: BootInstant, op_timeout: Duration) -> Self {
        Self { answered_at: now, round_trip: now.since(sent_at), silence: LONG_SILENCE.min(op_timeout / 2) }
    }

    /// Takes note of an answer, of whatever content.
    pub(super) fn answered(&mut self, sent_at: BootInstant, now: BootInstant) {
        self.answered_at = self.answered_at.max(now);
        self.round_trip = self.round_trip.min(now.since(sent_at));
    }

    /// The instant of the last answer.
    pub(super) fn answered_at(&self) -> BootInstant {
        self.answered_at
    }

    /// Returns whether the connection is dead, as a request that was sent at `sent_at` and had time until `until` has no
    /// answer now. It had `patience` in all, some of which it may have waited for the connection.
    pub(super) fn is_dead(
        &self,
        sent_at: BootInstant,
        until: BootInstant,
        patience: Duration,
        now: BootInstant,
    ) -> bool {
        let silent_for = now.since(sent_at.max(self.answered_at));
        let enough = self.silence.max(self.round_trip * 2).max(patience / 4 * 3);
        now <= until.plus(STOOD_STILL) && silent_for >= enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(milliseconds))
    }

    fn pulse(round_trip: u64) -> Pulse {
        Pulse::new(at(1000 - round_trip), at(1000), Duration::from_secs(2))
    }

    /// Whether the lack of an answer to this request says that the connection is dead, noticed on time.
    fn is_dead(pulse: &Pulse, sent: u64, until: u64, patience: u64) -> bool {
        pulse.is_dead(at(sent), at(until), Duration::from_millis(patience), at(until))
    }

    #[test]
    fn a_request_that_had_no_time_left_says_nothing_however_many_there_are() {
        let pulse = pulse(20);
        for left in 1..1500 {
            assert!(!is_dead(&pulse, 1000, 1000 + left, 2000));
        }
        assert!(is_dead(&pulse, 1000, 2500, 2000));
    }

    #[test]
    fn a_long_silence_is_death_unless_anything_was_answered_meanwhile() {
        let mut pulse = pulse(20);
        assert!(!is_dead(&pulse, 1000, 1400, 400) && is_dead(&pulse, 1000, 1600, 600));
        pulse.answered(at(1000), at(1200));
        assert!(!is_dead(&pulse, 1000, 1600, 600) && is_dead(&pulse, 1000, 1700, 600));
    }

    #[test]
    fn a_slow_link_is_given_two_round_trips() {
        let mut pulse = pulse(520);
        assert!(!is_dead(&pulse, 1000, 1700, 700) && is_dead(&pulse, 1000, 2100, 1100));
        // The first answer was slow because the server was busy.
        pulse.answered(at(1000), at(1001));
        assert!(is_dead(&pulse, 1001, 1701, 700));
    }

    #[test]
    fn a_timeout_that_is_noticed_too_late_says_nothing() {
        assert!(!pulse(1).is_dead(at(1000), at(3000), Duration::from_secs(2), at(3200)));
    }

    #[test]
    fn a_short_operation_timeout_is_enough() {
        let pulse = Pulse::new(at(999), at(1000), Duration::from_millis(300));
        assert!(is_dead(&pulse, 1000, 1300, 300));
    }
}
