//! The time for the answer to a heartbeat.

use std::time::Duration;

/// The time for the answer to a heartbeat at one server. A heartbeat that gets none says that its connection is dead: so it
/// has nearly as long as any other request, but no longer than costs no living waiter its turn, which it keeps for 3 s without
/// a sign. Where the way is long, there must be time for an answer.
#[derive(Debug)]
pub(super) struct ReplyTimeout {
    now: Duration,
    shortest: Duration,
    longest: Duration,
}

impl ReplyTimeout {
    const SHORTEST: Duration = Duration::from_secs(1);
    /// The longest time at first, whatever the operation timeout: with one period between heartbeats before it, and the time to
    /// connect again after it, less than 3 s.
    const LONGEST_AT_FIRST: Duration = Duration::from_millis(1500);

    pub(super) fn new(op_timeout: Duration) -> Self {
        let shortest = (op_timeout / 4 * 3).clamp(Self::SHORTEST, Self::LONGEST_AT_FIRST).min(op_timeout);
        Self { now: shortest, shortest, longest: op_timeout }
    }

    /// The time for the next answer.
    pub(super) fn get(&self) -> Duration {
        self.now
    }

    /// Takes note that an answer took so long.
    pub(super) fn answered(&mut self, took: Duration) {
        self.now = (2 * took).max(self.shortest).min(self.longest);
    }

    /// Takes note that there was none in time.
    pub(super) fn failed(&mut self) {
        self.now = (2 * self.now).min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_has_most_of_an_operation_timeout_and_all_of_it_where_answers_take_longer() {
        let seconds = Duration::from_secs_f64;
        let mut timeout = ReplyTimeout::new(seconds(2.0));
        assert_eq!(timeout.get(), seconds(1.5));
        timeout.failed();
        assert_eq!(timeout.get(), seconds(2.0));
        timeout.answered(seconds(0.9));
        assert_eq!(timeout.get(), seconds(1.8));
        timeout.answered(seconds(0.01));
        assert_eq!(timeout.get(), seconds(1.5));
        let mut patient = ReplyTimeout::new(seconds(10.0));
        assert_eq!(patient.get(), seconds(1.5), "a waiter keeps its turn for 3 s without a sign");
        patient.failed();
        patient.failed();
        assert_eq!(patient.get(), seconds(6.0));
        patient.answered(seconds(4.0));
        assert_eq!(patient.get(), seconds(8.0));
        let mut short = ReplyTimeout::new(seconds(0.5));
        short.answered(seconds(0.4));
        assert_eq!(short.get(), seconds(0.5));
    }
}
