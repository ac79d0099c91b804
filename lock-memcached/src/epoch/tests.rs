//! Epochs, the server's clock, and what a client concludes from what it saw of them.

use super::*;
use crate::config::LongestLease;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_micros(1_795_247_659_123_456);

fn age(watched: u32, by_server: u32, by_wall_clock: u32) -> Age {
    Age { watched: SECOND * watched, by_server: SECOND * by_server, by_wall_clock: SECOND * by_wall_clock }
}

#[test]
fn an_epoch_survives_its_item() {
    for longest in [SECOND, SECOND * 30, LongestLease::MOST] {
        for open in [false, true] {
            let epoch = Epoch { open, ..Epoch::new(longest, NOW) };
            assert_eq!(Epoch::of(epoch.value().to_string().as_bytes(), 0), Some(epoch));
            assert!(epoch.admits(longest) && !epoch.admits(longest + SECOND));
        }
    }
    for foreign in [&b""[..], b"0", b"1", b"hello", b"\xff", b"9999999999999999999999"] {
        assert_eq!(Epoch::of(foreign, 0), None);
    }
}

#[test]
fn a_value_without_a_longest_lease_or_a_beginning_is_none_of_ours() {
    let epoch = Epoch::new(SECOND, NOW);
    for part in [Epoch { longest: 0, ..epoch }, Epoch { micros: 0, ..epoch }] {
        assert_eq!(Epoch::of(part.value().to_string().as_bytes(), 0), None, "{part:?}");
    }
}

#[test]
fn a_longest_lease_counts_in_whole_seconds_rounded_up() {
    let epoch = |ms| Epoch::new(Duration::from_millis(ms), NOW).longest();
    assert_eq!([1_000, 1_001, 1_999, 2_000].map(epoch), [SECOND, SECOND * 2, SECOND * 2, SECOND * 2]);
}

/// An epoch that was made then, when the server had stored so many items, and opened.
fn opened(made: Duration, stored: u64) -> Epoch {
    Epoch { cas: stored, ..Epoch::new(SECOND, made) }.opened()
}

#[test]
fn tokens_of_an_epoch_are_those_after_its_opening_up_to_the_present_cas_number() {
    let epoch = Epoch { cas: 9_002, ..opened(NOW, 9_000) };
    let token = |cas| epoch.token(cas).unwrap();
    assert!(!epoch.may_have_given(token(9_002), 9_007), "it was opened with that number");
    assert!(epoch.may_have_given(token(9_003), 9_007) && epoch.may_have_given(token(9_007), 9_007));
    assert!(!epoch.may_have_given(token(9_008), 9_007), "nothing was stored under it yet");
    for former in [opened(NOW - SECOND, 0), opened(NOW - Duration::from_micros(8_000), 8_000)] {
        assert!(!epoch.may_have_given(former.token(8_999).unwrap(), 9_007), "it is of an earlier epoch");
    }
    assert!(!epoch.may_have_given(FencingToken::new(1).unwrap(), 9_007));
}

#[test]
fn opening_one_takes_its_cas_number_off_its_beginning() {
    let closed = Epoch { cas: 8_000_000_000, ..Epoch::new(SECOND, NOW) };
    let open = closed.opened();
    assert!(open.open && open.admits(SECOND));
    assert_eq!((open.micros, open.value()), (closed.micros - closed.cas, closed.value() + 1 - 2 * closed.cas));
    assert_eq!(open.token(closed.cas).unwrap().as_u64(), closed.micros);
}

#[test]
fn an_open_epoch_can_be_read_however_many_items_were_stored_before() {
    let fifty_years_of_a_million_a_second = 50 * 365 * 24 * 60 * 60 * 1_000_000;
    for stored in [0, 1, fifty_years_of_a_million_a_second, NOW.as_micros() as u64, u64::MAX] {
        let open = opened(NOW, stored);
        assert_eq!(Epoch::of(open.value().to_string().as_bytes(), stored), Some(open), "{stored}");
    }
    let token = opened(NOW, fifty_years_of_a_million_a_second).token(fifty_years_of_a_million_a_second + 1);
    assert_eq!(token.unwrap().as_u64(), NOW.as_micros() as u64 + 1);
}

/// Each epoch ends by a restart, after which the server counts anew, or by a flush, after which it goes on.
#[test]
fn tokens_grow_within_an_epoch_and_from_one_to_the_next() {
    let month_of_3000_a_second = 30 * 24 * 60 * 60 * 3_000;
    for before in [0, 900_000, month_of_3000_a_second] {
        let (former, last) = (opened(NOW, before), before + 900_000);
        assert!(former.token(before + 1) < former.token(before + 2));
        for counts_from in [0, last] {
            let next = opened(NOW + SECOND, counts_from);
            let (highest, lowest) = (former.token(last), next.token(counts_from + 1));
            assert!(highest < lowest, "{highest:?} {lowest:?}, {before} stored before, then from {counts_from} on");
        }
        assert_eq!(former.token(u64::MAX), None);
    }
}

#[test]
fn it_stays_closed_for_its_longest_lease_by_ones_own_clock_or_by_both_others() {
    let epoch = Epoch::new(SECOND * 30, NOW);
    assert!(epoch.closed_for(age(0, 0, 0)) > SECOND * 30);
    assert_eq!(epoch.closed_for(age(32, 0, 0)), Duration::ZERO);
    assert!(!epoch.closed_for(age(31, 0, 0)).is_zero());
    assert_eq!(epoch.closed_for(age(0, 34, 34)), Duration::ZERO);
    for one_clock_is_wrong in [age(0, 900, 3), age(0, 3, 900)] {
        assert!(epoch.closed_for(one_clock_is_wrong) >= SECOND * 28);
    }
}

const fn at(seconds: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_secs(seconds))
}

#[test]
fn a_claim_counts_under_an_open_epoch_whose_clock_was_seen_to_run() {
    let open = Epoch { open: true, ..Epoch::new(SECOND * 30, NOW) };
    let judged = |watch: &mut EpochWatch, now, left| watch.judges(open, left, at(now), at(now), || NOW);
    let mut watch = EpochWatch::default();
    assert!(matches!(judged(&mut watch, 100, 900), GateVerdict::No(NotNow::ClockStands)));
    assert!(matches!(judged(&mut watch, 101, 899), GateVerdict::Counts(Some(epoch)) if epoch == open));
    let mut met = EpochWatch::default();
    met.set_met_anew(true);
    assert_eq!(judged(&mut met, 100, 900).counts(), Some(Some(open)));
    assert_eq!(GateVerdict::Counts(None).counts(), Some(None));
    assert_eq!(GateVerdict::No(NotNow::Missing).counts(), None);
}

#[test]
fn whatever_was_carried_out_between_two_looks_at_one_epoch_counts() {
    let open = |at| GateVerdict::Counts(Some(Epoch { open: true, ..Epoch::new(SECOND, at) }));
    let between = |first, last| GateVerdict::between(first, last);
    assert!(between(open(NOW), open(NOW)).counts().is_some());
    let other = between(open(NOW), open(NOW + SECOND));
    assert!(matches!(other, GateVerdict::No(NotNow::Missing)), "all was forgotten in between");
    let stands = GateVerdict::No(NotNow::ClockStands);
    assert!(matches!(between(open(NOW), stands), GateVerdict::No(NotNow::ClockStands)));
    assert!(matches!(between(stands, open(NOW)), GateVerdict::No(NotNow::ClockStands)));
}

#[test]
fn a_closed_epoch_is_watched_from_its_first_look_on() {
    let (closed, other) = (Epoch::new(SECOND * 30, NOW), Epoch::new(SECOND * 30, NOW + SECOND));
    let (mut watch, new) = (EpochWatch::default(), i64::from(CLOSED_FOR));
    assert!(watch.closed_for(closed, new, at(100), NOW) > SECOND * 30);
    assert!(!watch.closed_for(closed, new, at(131), NOW).is_zero());
    assert_eq!(watch.closed_for(closed, new, at(132), NOW), Duration::ZERO);
    assert!(watch.closed_for(other, new, at(133), NOW) > SECOND * 30, "it is another one");
    assert_eq!(watch.closed_for(other, new - 34, at(133), NOW + SECOND * 35), Duration::ZERO);
    let judged = watch.judges(closed, new, at(200), at(200), || NOW);
    assert!(matches!(judged, GateVerdict::No(NotNow::Closed(left)) if left > SECOND * 30));
}

#[test]
fn what_is_missing_is_put_back_and_what_is_closed_opened_when_it_is_time() {
    for now in [NotNow::Missing, NotNow::ClockStands, NotNow::Closed(Duration::ZERO)] {
        assert!(now.can_be_tended(false));
    }
    assert!(!NotNow::Closed(SECOND).can_be_tended(false));
    assert!(NotNow::Closed(SECOND).can_be_tended(true));
    assert_eq!(NotNow::Missing.pause(), Duration::from_millis(10));
    assert_eq!(NotNow::Closed(SECOND).pause(), LONGEST_PAUSE);
    assert_eq!(NotNow::Closed(Duration::ZERO).pause(), Duration::from_millis(1));
}

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
    // By 0.02 %, in this span and in the one before.
    let drift = i64::try_from(MEASURED_FOR.as_millis()).unwrap() * 2 / 5_000;
    assert!(crate::store::keys::MARGIN.as_millis() >= u128::from((whole_seconds + TOLERANCE + drift).unsigned_abs()));
}

/// A server that counts seconds from `phase` ms on, late by up to `drift` ms, and stood still from `stopped` to `went_on`.
struct PausedServer {
    phase: i64,
    drift: i64,
    stopped: i64,
    went_on: i64,
}

impl PausedServer {
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
            let server = PausedServer { phase, drift, stopped, went_on };
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
                    let ends = server.ends(went_on, crate::store::keys::item_ttl(Duration::from_millis(lease)));
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
    let server = PausedServer { phase: 0, drift: 0, stopped: 10_000, went_on: 60_500 };
    let mut clock = ServerClock::default();
    assert!(!clock.runs(server.look(58_000, 60_500)), "a look at a clock that stood for 50 s");
    assert!(!clock.runs(server.look(60_499, 60_500)));
    assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
    let mut late = ServerClock::default();
    let server = PausedServer { phase: 0, drift: 0, stopped: 16_000, went_on: 60_500 };
    assert!(!late.runs(server.look(10_000, 10_001)));
    assert!(!late.runs(server.look(60_400, 60_500)), "it has ticked since, and stood then");
    assert!(!late.runs(server.look(60_500, 60_500)));
    assert!(late.runs(server.look(60_600, 60_601)));
}

/// It ticked once after the first look, stood then, and answered the second one when it went on.
#[test]
fn a_tick_that_was_answered_late_shows_nothing() {
    let server = PausedServer { phase: 0, drift: 0, stopped: 11_100, went_on: 60_500 };
    let mut clock = ServerClock::default();
    assert!(!clock.runs(server.look(10_500, 10_501)));
    assert!(!clock.runs(server.look(11_050, 60_500)), "it stood for 49 s");
    assert!(!clock.runs(server.look(60_520, 60_521)), "it may have ticked long ago");
    assert!(!clock.runs(server.look(60_999, 60_999)));
    assert!(clock.runs(server.look(61_000, 61_001)), "it ticks");
}

/// It answered at once, ticked, and stood then for as long as the answer was on its way.
#[test]
fn a_first_look_whose_answer_came_late_shows_no_tick() {
    let server = PausedServer { phase: 0, drift: 0, stopped: 11_100, went_on: 60_500 };
    let mut clock = ServerClock::default();
    let late = ClockLook { answered: server.look(0, 60_495).answered, ..server.look(10_500, 10_500) };
    assert!(!clock.runs(late));
    assert!(!clock.runs(server.look(60_496, 60_500)), "it stood for 49 s between the two");
    assert!(clock.runs(server.look(60_520, 60_521)), "it has caught up");
}

/// By the instant of a late answer, the server would be seen to be behind too late.
#[test]
fn a_look_over_a_new_connection_is_a_measure_only_if_it_was_answered_soon() {
    let server = PausedServer { phase: 0, drift: 0, stopped: 20_000, went_on: 26_000 };
    let mut clock = ServerClock::default();
    clock.set_met_anew(true);
    let late = ClockLook { answered: server.look(0, 14_000).answered, ..server.look(10_500, 10_500) };
    assert!(!clock.runs(late));
    assert!(clock.runs(server.look(14_000, 14_001)));
    clock.set_met_anew(false);
    assert!(!clock.runs(server.look(25_999, 26_000)), "it stood for 6 s");
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
fn a_clock_is_behind_beyond_the_tolerance_of_its_best_measure() {
    let mut clock = met(10_000);
    assert!(clock.runs(look(12_500, 10)), "at the tolerance");
    assert!(!clock.runs(look(12_501, 10)), "beyond it");
    let mut slipping = met(10_000);
    assert!(slipping.runs(look(12_000, 10)) && slipping.runs(look(13_000, 11)), "two seconds behind");
    assert!(!slipping.runs(look(16_000, 12)), "four seconds behind the best measure, and two behind the last");
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

/// The server's clock is faster than ours by 0.02 %, and so ahead by two seconds, by which a standstill would be hidden.
#[test]
fn a_measure_of_hours_ago_is_not_compared_with() {
    let (later, ahead) = (3 * 60 * 60 * 1000, 3 * 60 * 60 + 2);
    let stands = |local| look(local, ahead - 4);
    let mut clock = met(0);
    assert!(!clock.runs(stands(later)), "four seconds are missing");
    assert!(!clock.runs(stands(later + 20)));
    assert!(clock.runs(look(later + 40, ahead)), "it ticks");
    let mut met_anew = met(0);
    met_anew.set_met_anew(true);
    assert!(met_anew.runs(look(later, ahead)), "no tick is waited for");
    met_anew.set_met_anew(false);
    assert!(!met_anew.runs(look(later + 3_000, ahead)), "it is the measure from then on");
}

#[test]
fn a_measure_serves_for_minutes_without_a_look() {
    let mut clock = met(0);
    assert!(!clock.is_out_of_date(at(9 * 60)) && clock.is_out_of_date(at(10 * 60)));
    assert!(clock.runs(look(9 * 60 * 1000, 9 * 60)));
    assert!(!clock.is_out_of_date(at(18 * 60)), "the look has renewed it");
    assert!(!ServerClock::default().is_out_of_date(at(3 * 60 * 60)), "nothing was measured");
}

#[test]
fn numbers_of_another_epoch_are_not_compared() {
    let mut clock = met(10_000);
    assert!(clock.runs(look(10_000, 10)));
    assert!(!clock.runs(ClockLook { epoch: 2, ..look(11_000, -500) }));
    assert!(clock.runs(ClockLook { epoch: 2, ..look(11_020, -499) }));
}
