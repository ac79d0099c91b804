//! The lease of a session, until whose end it may be believed in: a pure computation, without clock or I/O.
//!
//! A server to which a client is connected need not be the leader, which alone decides when a session has expired. It
//! tells the leader which of its clients it has heard only when the leader pings it; pings and reads it answers by itself,
//! even when it is cut off. So only an answer that a quorum has agreed upon counts, and that only for what the leader had
//! been told by then: the answer to a heartbeat proves that the leader knew of the heartbeats before, if a ping lies between.
//!
//! The leader waits for half a tick between two pings, and works besides: two pings are always a bit more than half a tick
//! apart. So a whole tick is to lie between two heartbeats, within which there is a ping even if it is half a tick late.

use std::collections::VecDeque;
use std::time::Duration;

use lock_core::clock::BootInstant;

/// The least number of heartbeats within a session's timeout.
const HEARTBEATS: u32 = 8;

/// The lease of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionLease {
    /// The time for which the servers keep the session, less the margin for the rates of two clocks.
    lasts: Duration,
    /// Within which time the leader has surely asked each server for what it has heard.
    ping: Duration,
    heartbeat_interval: Duration,
    end: BootInstant,
    over: bool,
    /// Heartbeats that were answered, the oldest first, of which the leader need not have heard yet: at most those of one ping and
    /// one round trip, fewer than a session has in its timeout.
    answered: VecDeque<Heartbeat>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Heartbeat {
    sent_at: BootInstant,
    answered_at: BootInstant,
}

/// Returns the longest tick with which heartbeats can keep a session of this timeout: one that the servers had is proven by the next one
/// behind a ping, which must be answered before the end.
pub(crate) fn longest_tick(timeout: Duration) -> Duration {
    timeout * 4 / 5
}

impl SessionLease {
    /// The lease of a session that was asked for at `asked_at`; the leader itself has made it.
    pub fn new(asked_at: BootInstant, timeout: Duration, tick: Duration) -> Self {
        let margin = timeout / 100 + Duration::from_millis(2);
        let lasts = timeout.saturating_sub(margin);
        Self {
            lasts,
            ping: tick,
            heartbeat_interval: heartbeat_interval(timeout, tick),
            end: asked_at.plus(lasts),
            over: false,
            answered: VecDeque::new(),
        }
    }

    /// Whether so little of its time had passed when the session was open, at this instant, that heartbeats keep it: a third of what it
    /// lasts beyond a ping at most.
    pub fn is_fresh(&self, opened_at: BootInstant) -> bool {
        let passed = self.lasts.saturating_sub(self.end.since(opened_at));
        passed <= self.lasts.saturating_sub(self.ping) / 3
    }

    /// Whether enough is left at this instant for two heartbeats with a ping in between.
    pub fn can_be_kept(&self, now: BootInstant) -> bool {
        self.end.since(now) > self.proof()
    }

    /// Returns for how long, from this instant on, the heartbeats that keep it may be put off.
    pub fn spare(&self, now: BootInstant) -> Duration {
        self.end.since(now).saturating_sub(self.proof() + self.heartbeat_interval)
    }

    /// The time between two heartbeats of which the later one proves the other.
    fn proof(&self) -> Duration {
        let heartbeats = self.ping.as_nanos().div_ceil(self.heartbeat_interval.as_nanos().max(1));
        self.heartbeat_interval * u32::try_from(heartbeats).unwrap_or(u32::MAX)
    }

    /// Returns the time between two heartbeats.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }

    /// A heartbeat was answered. An answer that comes after the end changes nothing any more.
    pub fn answered(&mut self, sent_at: BootInstant, now: BootInstant) {
        if self.is_over(now) {
            return;
        }
        let known =
            self.answered.iter().take_while(|heartbeat| heartbeat.answered_at.plus(self.ping) <= sent_at).count();
        if let Some(heartbeat) = self.answered.drain(..known).next_back() {
            self.end = self.end.max(heartbeat.sent_at.plus(self.lasts));
        }
        self.answered.push_back(Heartbeat { sent_at, answered_at: now });
    }

    /// Returns the instant until which the session may be believed in, unless it moves on.
    pub fn end(&self) -> BootInstant {
        self.end
    }

    /// The session ended otherwise.
    pub fn give_up(&mut self) {
        self.over = true;
    }

    /// Whether the session is over. A passed end is final.
    pub fn is_over(&mut self, now: BootInstant) -> bool {
        self.over |= now >= self.end;
        self.over
    }
}

/// An eighth of the timeout, or less: so that a whole number of heartbeats lies within a ping and a round trip, and the lease
/// is not shorter by what is left of the last one.
fn heartbeat_interval(timeout: Duration, ping: Duration) -> Duration {
    let most = timeout / HEARTBEATS;
    let with_trip = ping + ping / 16;
    let heartbeats = with_trip.as_nanos().div_ceil(most.as_nanos().max(1));
    if heartbeats < 2 { most } else { with_trip / u32::try_from(heartbeats).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    /// A session of 10 s, asked for at 0, with servers of a tick of 2 s: it is believed in for 9,898 ms.
    fn lease() -> SessionLease {
        SessionLease::new(at(0), Duration::from_secs(10), Duration::from_secs(2))
    }

    #[test]
    fn a_heartbeat_counts_when_a_later_one_is_answered() {
        let mut lease = lease();
        lease.answered(at(100), at(110));
        assert_eq!(lease.end(), at(9_898), "the leader need not have heard of the only heartbeat");
        lease.answered(at(2_600), at(2_610));
        assert_eq!(lease.end(), at(100 + 9_898));
        lease.answered(at(5_100), at(5_110));
        assert_eq!(lease.end(), at(2_600 + 9_898));
    }

    #[test]
    fn a_heartbeat_does_not_count_without_a_ping_in_between() {
        let mut lease = lease();
        lease.answered(at(100), at(110));
        // Half a tick is what the leader waits between two pings; its own work comes on top.
        lease.answered(at(1_110), at(1_200));
        lease.answered(at(2_109), at(2_200));
        assert_eq!(lease.end(), at(9_898));
        lease.answered(at(2_110), at(2_210));
        assert_eq!(lease.end(), at(100 + 9_898), "now one does");
    }

    #[test]
    fn heartbeats_are_as_far_apart_as_leaves_most_of_a_session() {
        for (timeout, tick, least) in
            [(10_000, 2_000, 6_700), (4_000, 2_000, 1_400), (2_000, 200, 1_400), (100_000, 2_000, 73_000)]
        {
            let (timeout, tick) = (Duration::from_millis(timeout), Duration::from_millis(tick));
            let mut lease = SessionLease::new(at(0), timeout, tick);
            let (every, trip) = (lease.heartbeat_interval(), Duration::from_millis(5));
            assert!(every >= timeout / 16 && every <= timeout / 8, "{every:?} of {timeout:?}");
            for heartbeat in 0..100 {
                let sent_at = at(0).plus(every * heartbeat);
                // Before its answer came.
                let left = lease.end().since(sent_at.plus(trip));
                assert!(
                    left >= Duration::from_millis(least),
                    "{left:?} of {timeout:?} are left at heartbeat {heartbeat}"
                );
                lease.answered(sent_at, sent_at.plus(trip));
            }
        }
    }

    /// Whatever the tick is that a session may have.
    #[test]
    fn a_session_that_is_fresh_when_it_is_open_is_kept() {
        let timeout = Duration::from_secs(10);
        assert_eq!(longest_tick(timeout), Duration::from_secs(8));
        for tick in [200, 2_000, 4_000, 6_000, 8_000] {
            let (tick, trip) = (Duration::from_millis(tick), Duration::from_millis(5));
            assert!(tick <= longest_tick(timeout));
            let mut lease = SessionLease::new(at(0), timeout, tick);
            let instants = (0..10_000).map(at);
            let opened_at = instants.take_while(|instant| lease.is_fresh(*instant)).last().unwrap();
            // With the defaults one server that does not answer, which takes a fifth, is no reason to open another one.
            let least = if tick == Duration::from_secs(2) { timeout / 5 } else { Duration::ZERO };
            assert!(opened_at.since(at(0)) > least, "{opened_at:?} with a tick of {tick:?}");
            for heartbeat in 0..100 {
                let sent_at = opened_at.plus(lease.heartbeat_interval() * heartbeat);
                lease.answered(sent_at, sent_at.plus(trip));
                assert!(!lease.is_over(sent_at.plus(trip)), "over at heartbeat {heartbeat} with a tick of {tick:?}");
            }
        }
    }

    #[test]
    fn a_session_is_kept_by_heartbeats_that_begin_when_its_spare_time_is_over() {
        let timeout = Duration::from_secs(10);
        for tick in [200, 2_000, 4_000, 6_000, 8_000] {
            let tick = Duration::from_millis(tick);
            assert!(!SessionLease::new(at(0), timeout, tick).spare(at(0)).is_zero(), "with a tick of {tick:?}");
            for opened_at in (0..10_000).step_by(100).map(at) {
                let mut lease = SessionLease::new(at(0), timeout, tick);
                let spare = lease.spare(opened_at);
                if spare.is_zero() {
                    continue;
                }
                assert!(lease.can_be_kept(opened_at.plus(spare)));
                assert!(!lease.can_be_kept(opened_at.plus(spare + lease.heartbeat_interval())), "too late for two");
                for heartbeat in 0..100 {
                    let sent_at = opened_at.plus(spare + lease.heartbeat_interval() * heartbeat);
                    lease.answered(sent_at, sent_at.plus(Duration::from_millis(5)));
                    assert!(!lease.is_over(sent_at), "over at heartbeat {heartbeat} with a tick of {tick:?}");
                }
            }
        }
    }

    #[test]
    fn a_passed_end_is_final() {
        let mut lease = lease();
        lease.answered(at(5_000), at(5_010));
        assert!(!lease.is_over(at(9_897)));
        lease.answered(at(9_800), at(9_898));
        assert!(lease.is_over(at(9_898)));
        lease.answered(at(9_899), at(9_900));
        assert!(lease.is_over(at(9_900)), "a later answer does not revive it");
    }

    #[test]
    fn a_session_that_is_given_up_is_over() {
        let mut lease = lease();
        assert!(!lease.is_over(at(1)));
        lease.give_up();
        assert!(lease.is_over(at(1)));
    }
}
