//! Turns at a lock, told of at instants of the tests' choice.

use super::*;

type TestTurns = Turns<&'static str, &'static str>;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: WaitLimits = WaitLimits {
    since: at(1000),
    deadline: Deadline::at(at(60_000)),
    patience: Duration::from_secs(10),
    op_timeout: Duration::from_secs(2),
    longest_pause: Duration::from_millis(25),
};

const fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

fn turns() -> (TestTurns, Ticket) {
    let mut turns = Turns::new(at(1000));
    let first = turns.comes(at(1000)).unwrap();
    (turns, first)
}

#[test]
fn waiters_are_the_first_one_in_the_order_of_their_coming() {
    let (mut turns, first) = turns();
    assert_eq!(turns.comes(at(1000)), None);
    let (second, third, fourth) = (turns.behind("second"), turns.behind("third"), turns.behind("fourth"));
    assert_eq!(turns.goes(at(1000), third), [None, None, Some("fourth")], "it was not the first one");
    assert!(turns.is_first(first) && !turns.is_first(second));
    assert_eq!(turns.goes(at(1000), first), [Some("second"), Some("fourth"), None]);
    assert_eq!(turns.goes(at(1000), first), [None, None, None], "it has gone");
    assert!(turns.is_first(second));
    assert_eq!(turns.goes(at(1000), second), [Some("fourth"), None, None]);
    assert!(turns.is_waited_in());
    assert_eq!(turns.goes(at(1000), fourth), [None, None, None]);
    assert!(!turns.is_waited_in());
    assert!(turns.comes(at(1000)).is_some_and(|fifth| fifth > fourth));
}

#[test]
fn an_offer_goes_with_its_waiter() {
    let (mut turns, first) = turns();
    assert_eq!(turns.hands_over(at(1000)), None, "nobody pauses");
    turns.offers(first, "first");
    assert_eq!(turns.hands_over(at(1000)), Some("first"));
    assert_eq!(turns.hands_over(at(1000)), None, "it is taken");
    turns.offers(first, "first");
    assert_eq!(turns.withdraws(first), Some("first"));
    turns.offers(first, "first");
    let second = turns.behind("second");
    assert_eq!(turns.withdraws(second), None, "it is another's");
    turns.offers(second, "second");
    assert_eq!(turns.hands_over(at(1000)), Some("first"), "only the first one has an offer");
    turns.offers(first, "first");
    turns.goes(at(1000), first);
    assert_eq!(turns.hands_over(at(1000)), None);
}

#[test]
fn others_have_their_turn_after_eight_hand_overs() {
    let (mut turns, first) = turns();
    for _ in 0..8 {
        turns.offers(first, "");
        assert!(turns.hands_over(at(1000)).is_some());
    }
    turns.offers(first, "");
    assert_eq!(turns.hands_over(at(1000)), None);
    assert_eq!(turns.next_look(at(1000), &LIMITS, Duration::ZERO), at(1001));
    assert_eq!(turns.next_look(at(1001), &LIMITS, Duration::ZERO), at(1001));
    assert_eq!(turns.hands_over(at(1001)), Some(""), "a new row");
}

#[test]
fn a_server_is_not_silent_while_the_first_one_pauses() {
    let (mut turns, first) = turns();
    let second = turns.behind("second");
    turns.tried(at(1000), &LIMITS, Tried::Held, false);
    let next = turns.next_look(at(1000), &LIMITS, SECOND * 20);
    turns.pauses_until(next, first);
    let short = WaitLimits { deadline: Deadline::at(at(15_000)), ..LIMITS };
    assert_eq!(turns.stands(at(12_000), &short, second, &"second"), Standing::Until(at(15_000)));
    assert_eq!(turns.stands(at(15_000), &short, second, &"second"), Standing::Over);
    let silent_at = next.plus(LIMITS.patience);
    turns.tried(next, &LIMITS, Tried::Failed { may_pass: true }, false);
    turns.pauses_until(next.plus(SECOND * 20), first);
    assert_eq!(
        turns.stands(silent_at, &LIMITS, second, &"second"),
        Standing::Silent(LIMITS.patience),
        "a pause is no answer"
    );
}

/// The client looks at so much that its pace asks for a pause of 20 s.
#[test]
fn after_a_try_without_an_answer_the_server_is_asked_again_before_it_counts_as_silent() {
    for op_timeout in [Duration::ZERO, SECOND, SECOND * 2] {
        let (mut turns, first) = turns();
        let (limits, second) = (WaitLimits { op_timeout, ..LIMITS }, turns.behind("second"));
        assert_eq!(turns.pause_by_pace(&limits, None, SECOND * 20), SECOND * 20, "it answers");
        let (mut now, mut asked) = (at(1000), 0);
        turns.tried(now, &limits, Tried::Held, false);
        now = turns.next_look(now, &limits, SECOND * 20);
        let silent_at = now.plus(limits.patience);
        turns.pauses_until(now, first);
        while now < silent_at {
            assert!(matches!(turns.stands(now, &limits, second, &"second"), Standing::Until(_)), "after {asked}");
            turns.asks(now, &limits, first);
            asked += 1;
            turns.tried(now.plus(op_timeout), &limits, Tried::Failed { may_pass: true }, false);
            // With all of its jitter.
            let pause = turns.pause_by_pace(&limits, None, SECOND * 20) * 2;
            now = turns.next_look(now.plus(op_timeout), &limits, pause);
            turns.pauses_until(now, first);
        }
        assert!(asked >= 3, "asked {asked} times");
        turns.tried(now, &limits, Tried::Held, false);
        assert_eq!(turns.pause_by_pace(&limits, None, SECOND * 20), SECOND * 20, "it answers again");
    }
}

#[test]
fn whoever_has_something_at_the_server_looks_before_it_ends() {
    let (mut turns, _) = turns();
    let pause = |turns: &Turns<_, _>, ttl| turns.pause_by_pace(&LIMITS, Some(ttl), SECOND * 8) * 2;
    assert_eq!(pause(&turns, SECOND * 9), SECOND * 3);
    turns.tried(at(1000), &LIMITS, Tried::Failed { may_pass: true }, false);
    assert_eq!(pause(&turns, SECOND * 9), LIMITS.patience / 4);
    assert_eq!(pause(&turns, SECOND * 3), SECOND);
}

#[test]
fn many_that_hurry_look_sixteen_times_as_often_as_the_pace_allows_at_most() {
    let (mut turns, _) = turns();
    turns.tried(at(1000), &LIMITS, Tried::Failed { may_pass: true }, false);
    for (asked, pauses) in [(SECOND / 4, SECOND / 4), (SECOND * 8, SECOND / 2), (SECOND * 320, SECOND * 20)] {
        assert_eq!(turns.pause_by_pace(&LIMITS, Some(SECOND * 3), asked), pauses, "{asked:?}");
    }
}

#[test]
fn a_first_one_that_does_not_look_is_passed_over() {
    let (mut turns, first) = turns();
    let [second, third, fourth] = ["second", "third", "fourth"].map(|wake| turns.behind(wake));
    turns.tried(at(1000), &LIMITS, Tried::Held, false);
    turns.pauses_until(at(1025), first);
    turns.offers(first, "first");
    assert_eq!(turns.stands(at(2024), &LIMITS, second, &"second"), Standing::Until(at(2025)));
    assert_eq!(turns.stands(at(2024), &LIMITS, third, &"third"), Standing::Until(at(2025)));
    assert_eq!(turns.stands(at(2024), &LIMITS, fourth, &"fourth"), Standing::Until(at(7025)), "two watch closely");
    assert_eq!(turns.stands(at(2025), &LIMITS, third, &"third"), Standing::First(Some("fourth")), "which watches now");
    assert!(turns.is_first(third) && turns.is_passed_over(first) && !turns.is_passed_over(second));
    assert_eq!(
        turns.stands(at(2025), &LIMITS, second, &"second"),
        Standing::Until(at(3025)),
        "that one has just begun"
    );
    assert_eq!(turns.stands(at(2025), &LIMITS, third, &"third"), Standing::First(None), "it is that already");
    // The one that was passed over changes nothing for the first one.
    turns.pauses_until(at(9000), first);
    turns.asks(at(9000), &LIMITS, first);
    turns.offers(first, "first");
    assert_eq!(turns.hands_over(at(2025)), None);
    turns.offers(third, "third");
    assert_eq!(turns.withdraws(first), None);
    assert_eq!(turns.hands_over(at(2025)), Some("third"));
    assert_eq!(turns.goes(at(2100), third), [Some("second"), Some("fourth"), None]);
    assert_eq!(turns.stands(at(2101), &LIMITS, fourth, &"fourth"), Standing::Until(at(3100)));
    assert_eq!(turns.goes(at(2101), second), [Some("fourth"), None, None]);
    assert_eq!(turns.goes(at(2101), fourth), [None, None, None]);
    assert!(!turns.is_over(at(9000)), "one may return");
    assert_eq!(turns.goes(at(9000), first), [None, None, None]);
    assert!(turns.is_over(at(9000)));
}

#[test]
fn whoever_was_passed_over_returns_to_its_place() {
    let (mut turns, first) = turns();
    let [second, third] = ["second", "third"].map(|wake| turns.behind(wake));
    assert!(matches!(turns.stands(at(9000), &LIMITS, second, &"second"), Standing::First(_)));
    assert_eq!(turns.stands(at(9000), &LIMITS, first, &"first"), Standing::Until(at(10_000)));
    assert!(!turns.is_passed_over(first) && turns.is_first(second));
    assert_eq!(turns.goes(at(9000), second), [Some("first"), Some("third"), None], "before those that came later");
    assert!(matches!(turns.stands(at(19_000), &LIMITS, third, &"third"), Standing::First(_)));
    turns.goes(at(19_000), third);
    assert_eq!(turns.stands(at(19_000), &LIMITS, first, &"first"), Standing::First(None), "nobody else waits");
    assert_eq!(turns.goes(at(19_000), first), [None, None, None]);
    assert!(turns.is_over(at(19_000)));
}

#[test]
fn whoever_was_passed_over_before_it_looked_once_returns_too() {
    let (mut turns, first) = turns();
    let [second, third] = ["second", "third"].map(|wake| turns.behind(wake));
    assert_eq!(turns.goes(at(1000), first), [Some("second"), Some("third"), None]);
    assert_eq!(turns.stands(at(2000), &LIMITS, third, &"third"), Standing::First(None));
    assert_eq!(turns.stands(at(2001), &LIMITS, second, &"second"), Standing::Until(at(3000)));
    assert_eq!(turns.goes(at(2100), third), [Some("second"), None, None]);
    assert_eq!(turns.stands(at(2100), &LIMITS, second, &"second"), Standing::First(None));
    assert_eq!(turns.goes(at(2100), second), [None, None, None]);
    assert!(turns.is_over(at(2100)));
}

#[test]
fn whoever_comes_nearer_to_the_first_one_is_woken_to_watch_it() {
    let (mut turns, first) = turns();
    let [second, third, _, fifth] = ["second", "third", "fourth", "fifth"].map(|wake| turns.behind(wake));
    assert_eq!(turns.goes(at(1000), fifth), [None, None, None], "it did not watch");
    assert_eq!(turns.goes(at(1000), third), [None, None, Some("fourth")]);
    turns.behind("sixth");
    assert_eq!(turns.goes(at(1000), first), [Some("second"), Some("fourth"), Some("sixth")]);
    assert_eq!(turns.goes(at(1000), second), [Some("fourth"), Some("sixth"), None], "the last one watched already");
}

#[test]
fn a_first_one_that_asks_keeps_its_place_as_long_as_it_is_polled() {
    let (mut turns, first) = turns();
    let second = turns.behind("second");
    turns.asks(at(2000), &LIMITS, first);
    assert_eq!(turns.stands(at(6999), &LIMITS, second, &"second"), Standing::Until(at(7000)));
    turns.asks(at(7000), &LIMITS, first);
    assert_eq!(turns.stands(at(7000), &LIMITS, second, &"second"), Standing::Until(at(11_000)), "it is polled");
    assert_eq!(turns.stands(at(12_000), &LIMITS, second, &"second"), Standing::First(None));
}

#[test]
fn whoever_comes_leaves_a_late_one_a_moment() {
    let (mut turns, first) = turns();
    turns.pauses_until(at(1025), first);
    let second = turns.behind("second");
    let limits = WaitLimits { since: at(9000), ..LIMITS };
    assert_eq!(turns.stands(at(9000), &limits, second, &"second"), Standing::Until(at(9100)));
    let ended = WaitLimits { deadline: Deadline::at(at(9050)), ..limits };
    assert_eq!(turns.stands(at(9050), &ended, second, &"second"), Standing::First(None), "nobody has looked for it");
}

#[test]
fn a_late_one_is_passed_over_before_the_server_counts_as_silent() {
    let (mut turns, first) = turns();
    let [second, third] = ["second", "third"].map(|wake| turns.behind(wake));
    turns.pauses_until(at(1025), first);
    let impatient = WaitLimits { patience: Duration::from_millis(300), ..LIMITS };
    assert_eq!(turns.stands(at(1324), &impatient, second, &"second"), Standing::Until(at(1325)));
    assert_eq!(turns.stands(at(1325), &impatient, second, &"second"), Standing::First(None));
    assert_eq!(turns.stands(at(1325), &impatient, third, &"third"), Standing::Until(at(1625)), "nobody has asked it");
    // The present first one was not late.
    assert_eq!(turns.goes(at(1325), second), [Some("third"), None, None]);
    assert_eq!(turns.silent_from, at(1325));
    turns.asks(at(1400), &impatient, third);
    assert_eq!(turns.goes(at(1500), third), [None, None, None]);
    assert_eq!(turns.silent_from, at(1325));
}

#[test]
fn a_server_is_not_silent_when_a_late_first_one_goes() {
    let (mut turns, first) = turns();
    let [_, third] = ["second", "third"].map(|wake| turns.behind(wake));
    turns.pauses_until(at(1025), first);
    turns.goes(at(10_900), first);
    assert_eq!(turns.stands(at(11_025), &LIMITS, third, &"third"), Standing::Until(at(11_900)));
}

#[test]
fn a_first_one_that_does_not_look_is_not_handed_the_lock() {
    let (mut turns, first) = turns();
    turns.pauses_until(at(1025), first);
    turns.offers(first, "first");
    assert_eq!(turns.hands_over(at(1125)), None);
    assert_eq!(turns.hands_over(at(1124)), Some("first"));
}

#[test]
fn whoever_waits_is_woken_while_others_have_their_turn_and_looks_after_it() {
    let (mut turns, first) = turns();
    let fairness = turns.fairness.get_or_insert_default();
    while fairness.may_continue(at(1000)) {
        fairness.counts(at(1000));
    }
    assert!(turns.is_waited_in());
    assert_eq!(turns.next_look(at(1000), &LIMITS, Duration::ZERO), at(1001), "woken at once");
    assert_eq!(turns.next_look(at(1000), &LIMITS, SECOND), at(2000), "not woken");
    turns.goes(at(1000), first);
    assert!(!turns.is_waited_in());
}

#[test]
fn first_tries_leave_a_lock_to_others_that_want_it() {
    let (mut turns, mut first) = turns();
    let limits = WaitLimits { deadline: Deadline::at(at(1300)), ..LIMITS };
    assert_eq!(turns.tried(at(1000), &limits, Tried::Held, true), AfterTry::Pauses(Duration::ZERO));
    assert!(turns.first_try_at(at(1200), &limits).is_none(), "it was ours: nobody else wants it");
    assert_eq!(turns.tried(at(1200), &limits, Tried::Held, false), AfterTry::Pauses(Duration::ZERO));
    assert_eq!(turns.tried(at(1200), &limits, Tried::Granted, false), AfterTry::Ends);
    for taken in 0..8 {
        turns.goes(at(1000), first);
        assert!(!turns.is_over(at(1200)), "others want it");
        first = turns.comes(at(1000)).unwrap();
        assert_eq!(turns.first_try_at(at(1200), &limits), None, "{taken}");
        assert_eq!(turns.tried(at(1200), &limits, Tried::Granted, false), AfterTry::Ends);
    }
    assert_eq!(turns.first_try_at(at(1299), &limits), Some(at(1300)), "for 24 ms, and the deadline is before");
    turns.goes(at(1000), first);
    assert!(turns.is_over(at(2200)));
}

#[test]
fn a_lock_that_was_taken_after_others_begins_a_row() {
    let (mut turns, first) = turns();
    for _ in 0..8 {
        turns.offers(first, "");
        assert!(turns.hands_over(at(1000)).is_some());
    }
    turns.tried(at(1000), &LIMITS, Tried::Held, false);
    turns.tried(at(1000), &LIMITS, Tried::Granted, false);
    turns.goes(at(1000), first);
    let first = turns.comes(at(1000)).unwrap();
    turns.offers(first, "");
    assert!(turns.hands_over(at(1000)).is_some(), "the row of before is over");
    turns.tried(at(1000), &LIMITS, Tried::Granted, false);
    turns.goes(at(1000), first);
    assert!(!turns.is_over(at(1999)));
}

#[test]
fn a_try_ends_a_wait_or_is_followed_by_a_pause() {
    let (mut turns, _) = turns();
    let pause = Duration::from_millis(7);
    assert_eq!(turns.tried(at(2000), &LIMITS, Tried::NotNow(pause), false), AfterTry::Pauses(pause));
    assert_eq!(turns.tried(at(2000), &LIMITS, Tried::Failed { may_pass: false }, false), AfterTry::Ends);
    let failed = Tried::Failed { may_pass: true };
    assert_eq!(turns.tried(at(11_999), &LIMITS, failed, false), AfterTry::Pauses(LIMITS.longest_pause));
    assert_eq!(turns.tried(at(12_000), &LIMITS, failed, false), AfterTry::Ends, "10 s after the last answer");
    assert_eq!(turns.tried(at(59_999), &LIMITS, Tried::Held, false), AfterTry::Pauses(Duration::ZERO));
    for last in [Tried::Held, Tried::NotNow(pause), failed] {
        assert_eq!(turns.tried(at(60_000), &LIMITS, last, false), AfterTry::Ends);
    }
}

#[test]
fn the_next_look_is_after_the_pause_and_not_after_the_deadline() {
    let (turns, _) = turns();
    assert_eq!(turns.next_look(at(2000), &LIMITS, SECOND), at(3000));
    assert_eq!(turns.next_look(at(59_500), &LIMITS, SECOND), at(60_000));
}

#[test]
fn who_stands_behind_others_gives_up_at_its_deadline_or_when_the_server_is_silent() {
    let (mut turns, first) = turns();
    let second = turns.behind("second");
    turns.pauses_until(at(20_000), first);
    turns.silent_from = at(1000);
    assert_eq!(turns.stands(at(1000), &LIMITS, second, &"second"), Standing::Until(at(11_000)));
    assert_eq!(turns.stands(at(11_000), &LIMITS, second, &"second"), Standing::Silent(LIMITS.patience));
    turns.tried(at(5000), &LIMITS, Tried::Held, false);
    assert_eq!(turns.stands(at(11_000), &LIMITS, second, &"second"), Standing::Until(at(15_000)));
    let late = WaitLimits { since: at(7000), ..LIMITS };
    assert_eq!(
        turns.stands(at(11_000), &late, second, &"second"),
        Standing::Until(at(17_000)),
        "silence counts from its coming"
    );
    let short = WaitLimits { deadline: Deadline::at(at(6000)), ..LIMITS };
    assert_eq!(turns.stands(at(5500), &short, second, &"second"), Standing::Until(at(6000)));
    assert_eq!(turns.stands(at(6999), &short, second, &"second"), Standing::Over);
    assert_eq!(turns.stands(at(7000), &short, second, &"second"), Standing::Silent(LIMITS.op_timeout));
    let impatient = WaitLimits { patience: SECOND, ..short };
    assert_eq!(turns.stands(at(6000), &impatient, second, &"second"), Standing::Silent(SECOND));
}

#[test]
fn patience_begins_anew_for_all_when_the_process_stood_still() {
    let (mut turns, first) = turns();
    let second = turns.behind("second");
    turns.awakes(at(30_000), &LIMITS);
    assert_eq!(
        turns.stands(at(30_000), &LIMITS, second, &"second"),
        Standing::Until(at(31_000)),
        "it may have been late with all"
    );
    let ended = WaitLimits { deadline: Deadline::at(at(29_000)), ..LIMITS };
    turns.awakes(at(39_999), &ended);
    assert_eq!(turns.silent_from, at(30_000), "a wait that is over does not go on");
    assert_eq!(turns.stands(at(39_999), &LIMITS, second, &"second"), Standing::Until(at(40_000)));
    turns.pauses_until(at(40_000), first);
    turns.silent_from = at(30_000);
    assert_eq!(turns.stands(at(30_000), &LIMITS, second, &"second"), Standing::Until(at(40_000)));
    assert_eq!(turns.stands(at(40_000), &LIMITS, second, &"second"), Standing::Silent(LIMITS.patience));
    let failed = Tried::Failed { may_pass: true };
    assert_eq!(turns.tried(at(39_999), &LIMITS, failed, false), AfterTry::Pauses(LIMITS.longest_pause));
    turns.awakes(at(20_000), &LIMITS);
    assert_eq!(turns.tried(at(40_000), &LIMITS, failed, false), AfterTry::Ends);
}

/// Takes the lock once more, if it may be.
fn takes(fairness: &mut Fairness, ms: u64) -> bool {
    let may = fairness.may_continue(at(ms));
    if may {
        fairness.counts(at(ms));
    }
    may
}

#[test]
fn a_row_ends_after_eight_times_or_a_tenth_of_a_second() {
    let mut fairness = Fairness::default();
    assert!((0..8).all(|_| takes(&mut fairness, 1000)));
    assert!(!takes(&mut fairness, 1000));
    assert!(!takes(&mut fairness, 1000), "others have their turn");
    assert!(takes(&mut fairness, 1001), "for a millisecond");
    assert!(!takes(&mut fairness, 1101));
    assert_eq!(fairness.others_until(), at(1126), "for a quarter of what we had");
}

#[test]
fn claims_leave_the_lock_to_others_if_they_want_it() {
    let mut fairness = Fairness::default();
    for _ in 0..20 {
        assert_eq!(fairness.yields_until(at(1000)), None, "nobody else wants it");
        fairness.claimed(at(1000));
    }
    fairness.refused(at(1000));
    for _ in 0..8 {
        assert_eq!(fairness.yields_until(at(1000)), None);
        fairness.claimed(at(1000));
    }
    assert_eq!(fairness.yields_until(at(1000)), Some(at(1001)));
    for _ in 0..8 {
        assert_eq!(fairness.yields_until(at(1001)), None, "a new row");
        fairness.claimed(at(1001));
    }
    assert_eq!(fairness.yields_until(at(1001)), Some(at(1002)), "they want it still");
    assert_eq!(fairness.yields_until(at(2100)), None, "nobody has wanted it for a second");
}

#[test]
fn claims_leave_the_lock_to_others_while_they_have_their_turn() {
    let mut fairness = Fairness::default();
    while takes(&mut fairness, 1000) {}
    assert_eq!(fairness.yields_until(at(1000)), Some(at(1001)));
    assert_eq!(fairness.yields_until(at(1001)), None);
}
