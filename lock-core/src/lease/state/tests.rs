//! The promises that a holder relies on, event by event.

use super::*;

const TTL: Duration = Duration::from_secs(3);

fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

fn lease(options: LeaseOptions) -> LeaseState {
    LeaseState::new(&Grant::new(None, at(0), TTL), at(0), options, Duration::from_millis(2))
}

fn answer(sent: u64, answer: Answer) -> Event {
    Event::Answer { sent_at: at(sent), answer }
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[test]
fn the_margin_is_one_per_cent_and_the_granularity() {
    assert_eq!(lease(LeaseOptions::new(TTL)).deadline(), at(3000 - 30 - 2));
}

#[test]
fn the_least_that_is_left_is_that_at_the_next_renewal_less_the_margin() {
    let options = LeaseOptions::new(TTL);
    assert_eq!(lease(options).least_left(), Duration::from_millis(3000 - 30 - 2 - 1000));
    assert_eq!(lease(options.with_auto_renew(false)).least_left(), Duration::from_millis(3000 - 30 - 2));
}

#[test]
fn the_least_that_is_left_of_a_lease_in_parts_is_that_of_a_part() {
    let (asked, part) = (LeaseOptions::new(Duration::from_secs(60)), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), asked, Duration::from_millis(2));
    assert_eq!(lease.least_left(), Duration::from_millis(9000 - 90 - 2 - 3000));
    assert_eq!(lease.wake_at(), Some(at(3000)), "it is renewed when so much is left");
    lease.step(at(3000), Event::Tick);
    lease.step(at(3001), answer(3000, Answer::Part { valid_for: part / 2, asked: asked.ttl }));
    assert_eq!(lease.least_left(), Duration::from_millis(4500 - 45 - 2 - 1500));
}

#[test]
fn renewals_are_due_every_third_and_count_from_their_sending() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(999), Event::Tick).renew, None);
    assert_eq!(lease.step(at(1000), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.step(at(1001), Event::Tick).renew, None, "one renewal at a time");
    let actions = lease.step(at(1500), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), at(1000 + 2968), "counted from the sending, not from the answer");
    assert_eq!(actions.wake_at, Some(at(2000)));
}

#[test]
fn a_passed_deadline_is_final_and_told_once() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    assert!(!lease.is_held(at(2968)));
    let late = lease.step(at(2968), answer(1000, Answer::Renewed(TTL)));
    assert_eq!((late.lost, late.discard), (Some(LossReason::Expired), true));
    let again = lease.step(at(2969), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(again, Actions::default());
    assert!(!lease.is_held(at(2970)));
}

#[test]
fn a_renewal_that_is_never_answered_is_sent_again_after_an_interval() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(1000), Event::Tick).wake_at, Some(at(2000)));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.wake_at(), Some(at(2968)), "never past the deadline");
}

#[test]
fn an_unknown_answer_neither_extends_nor_ends() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    let actions = lease.step(at(1100), answer(1000, Answer::Unknown));
    assert_eq!((actions.lost, actions.wake_at), (None, Some(at(1150))));
    assert_eq!(lease.deadline(), at(2968));
    assert_eq!(lease.step(at(1150), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_lease_that_is_there_and_was_not_extended_is_renewed_again_soon() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    let actions = lease.step(at(1100), answer(1000, Answer::Held));
    assert_eq!((lease.deadline(), actions.wake_at), (at(2968), Some(at(1150))));
}

#[test]
fn a_suspicion_is_dispelled_only_by_a_renewal_that_was_sent_after_it() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1100), Event::Suspect);
    lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.step(at(1200), Event::Tick).renew, Some(TTL));
    let verified = lease.step(at(1210), answer(1200, Answer::Renewed(TTL)));
    assert_eq!(verified.wake_at, Some(at(2200)));
}

#[test]
fn a_lease_without_renewal_is_verified_once_after_a_suspicion_for_what_is_left_of_it() {
    let unrenewed = || lease(LeaseOptions::new(TTL).with_auto_renew(false));
    let left = TTL - Duration::from_millis(101);
    let mut kept = unrenewed();
    assert_eq!(kept.step(at(100), Event::Suspect).wake_at, Some(at(100)));
    assert_eq!(kept.step(at(101), Event::Tick).renew, Some(left));
    let confirmed = kept.step(at(110), answer(101, Answer::Renewed(left)));
    assert_eq!((confirmed.lost, confirmed.wake_at), (None, Some(kept.deadline())), "nothing more is asked");
    assert!(kept.deadline() <= at(3000), "it became longer than its holder has asked for");
    assert_eq!(kept.step(at(2000), Event::Tick).renew, None);

    let mut gone = unrenewed();
    gone.step(at(100), Event::Suspect);
    gone.step(at(101), Event::Tick);
    assert_eq!(gone.step(at(110), answer(101, Answer::Lost(LossReason::Taken))).lost, Some(LossReason::Taken));
}

/// The task of the first verification is gone, and a third of a day is too long to wait for its answer.
#[test]
fn a_newer_suspicion_is_not_held_back_by_a_verification_from_before_it() {
    let mut lease = LeaseState::new(
        &Grant::new(None, at(0), DAY),
        at(0),
        LeaseOptions::new(DAY).with_auto_renew(false),
        Duration::ZERO,
    );
    lease.step(at(100), Event::Suspect);
    assert!(lease.step(at(100), Event::Tick).renew.is_some());
    assert!(lease.step(at(5000), Event::Suspect).wake_at <= Some(at(5000)));
    assert!(lease.step(at(5000), Event::Tick).renew.is_some());
    assert!(lease.step(at(5001), Event::Tick).renew.is_none(), "one request for each suspicion");
    lease.step(at(5010), answer(5000, Answer::Renewed(DAY)));
    lease.step(at(5020), answer(100, Answer::Renewed(DAY)));
    assert!(lease.step(at(5020), Event::Tick).renew.is_none(), "a late answer raises no doubt again");
}

#[test]
fn a_lease_without_renewal_is_asked_for_until_an_answer_dispels_the_suspicion() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    lease.step(at(100), Event::Suspect);
    lease.step(at(100), Event::Tick);
    assert_eq!(lease.step(at(110), answer(100, Answer::Unknown)).wake_at, Some(at(160)));
    // An extension by hand that was answered by the server of before, for longer than what the next answer confirms.
    let long = Duration::from_secs(60);
    assert_eq!(lease.step(at(120), answer(90, Answer::Renewed(long))).wake_at, Some(at(120)));
    let wanted = at(90).plus(long).since(at(120));
    assert_eq!(lease.step(at(120), Event::Tick).renew, Some(wanted));
    // The answer to a short extension confirms too: the lease is not asked for again, and nothing is taken away from it.
    let deadline = lease.deadline();
    let confirmed = lease.step(at(130), answer(125, Answer::Renewed(TTL)));
    assert_eq!(confirmed.wake_at, Some(deadline));
}

#[test]
fn after_a_release_nothing_is_signalled_or_renewed() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(10), Event::Release);
    assert!(!lease.is_held(at(11)));
    let notice = Event::Notice { lost_by: at(5000), reason: LossReason::Taken };
    for event in [Event::Tick, notice, answer(5, Answer::Lost(LossReason::Taken))] {
        assert_eq!(lease.step(at(5000), event), Actions::default());
    }
}

#[test]
fn a_notice_of_what_was_lost_before_the_grant_was_asked_for_is_not_heard() {
    let grant = Grant::new(None, at(50), TTL);
    let mut lease = LeaseState::new(&grant, at(60), LeaseOptions::new(TTL), Duration::from_millis(2));
    let notice = |ms| Event::Notice { lost_by: at(ms), reason: LossReason::SessionExpired };
    assert_eq!(lease.step(at(70), notice(49)).lost, None);
    assert!(lease.is_held(at(70)));
    // It may be lost before the answer with the grant has come.
    assert_eq!(lease.step(at(70), notice(50)).lost, Some(LossReason::SessionExpired));
}

#[test]
fn a_release_at_the_deadline_finds_the_loss_and_a_second_one_nothing() {
    let mut late = lease(LeaseOptions::new(TTL));
    let told = late.step(at(2968), Event::Release);
    assert_eq!((told.lost, told.discard), (Some(LossReason::Expired), true));
    assert_eq!((late.is_released(), late.loss()), (false, Some(&LossReason::Expired)));
    assert_eq!(late.step(at(2969), Event::Release), Actions::default());
    assert_eq!(late.step(at(2969), Event::NotHeld(LossReason::Taken)), Actions::default(), "told already");

    let mut in_time = lease(LeaseOptions::new(TTL));
    assert_eq!(in_time.step(at(2967), Event::Release), Actions::default());
    assert_eq!((in_time.is_released(), in_time.loss(), in_time.wake_at()), (true, None, None));
    assert_eq!(in_time.step(at(9000), Event::Release), Actions::default());
    let gone = in_time.step(at(9001), Event::NotHeld(LossReason::Taken));
    assert_eq!((gone.lost, gone.discard), (Some(LossReason::Taken), false));
}

#[test]
fn only_a_release_can_find_that_nothing_was_held() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(10), Event::NotHeld(LossReason::Taken)), Actions::default());
    assert!(lease.is_held(at(11)) && lease.loss().is_none());
}

#[test]
fn the_pause_after_an_unknown_answer_doubles_up_to_a_second_and_begins_anew() {
    let mut lease = lease(LeaseOptions::new(TTL));
    for pause in [50, 100, 200, 400, 800, 1000, 1000] {
        assert_eq!(lease.step(at(500), answer(400, Answer::Unknown)).wake_at, Some(at(500 + pause)));
    }
    lease.step(at(600), answer(600, Answer::Renewed(TTL)));
    assert_eq!(lease.step(at(700), answer(600, Answer::Held)).wake_at, Some(at(750)));
}

#[test]
fn a_renewal_sent_at_the_instant_of_the_suspicion_dispels_it() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(500), Event::Suspect);
    assert_eq!(lease.step(at(500), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.step(at(510), answer(500, Answer::Renewed(TTL))).wake_at, Some(at(1500)));
}

#[test]
fn another_wish_hastens_the_next_renewal_only_where_it_is_stronger() {
    let options_of = |ms| LeaseOptions::new(Duration::from_millis(ms));
    let wake_at = |options, required| lease(options).step(at(500), Event::Require(required)).wake_at;
    assert_eq!(wake_at(options_of(3000), options_of(3000)), Some(at(1000)));
    assert_eq!(wake_at(options_of(3000), options_of(2400)), Some(at(800)), "its interval, from the last renewal");
    assert_eq!(wake_at(options_of(3000), options_of(6000)), Some(at(500)), "a longer one is asked for at once");
    assert_eq!(wake_at(options_of(3000), options_of(6000).with_auto_renew(false)), Some(at(500)), "and stays renewed");
    assert_eq!(
        wake_at(options_of(3000).with_auto_renew(false), options_of(3000)),
        Some(at(1000)),
        "renewed from now on"
    );
    assert_eq!(
        wake_at(options_of(3000).with_auto_renew(false), options_of(6000).with_auto_renew(false)),
        Some(at(2968)),
        "until its end"
    );
}

#[test]
fn a_server_that_counts_in_coarser_units_keeps_all_of_it() {
    let unrenewed = LeaseOptions::new(TTL).with_auto_renew(false);
    let state = |ms| {
        LeaseState::new(&Grant::new(None, at(0), Duration::from_millis(ms)), at(0), unrenewed, Duration::from_millis(2))
    };
    assert_eq!(state(2998).wake_at(), Some(at(2998 - 29 - 2).minus(Duration::from_micros(980))));
    assert_eq!(state(2997).wake_at(), Some(at(999)), "a third of what it keeps");
}

#[test]
fn the_longest_hold_counts_from_the_holders_beginning() {
    // A waiter was handed the lock by an answer to a question of 600 ms before.
    let grant = Grant::new(None, at(0), Duration::from_secs(2)).with_claim();
    let options = LeaseOptions::new(TTL).with_max_hold(Duration::from_millis(500));
    let mut lease = LeaseState::new(&grant, at(600), options, Duration::from_millis(2));
    assert!(lease.is_held(at(1099)) && !lease.is_held(at(1100)));
    assert_eq!(lease.step(at(619), Event::Tick).renew, None, "a release may come before");
    assert_eq!(lease.step(at(620), Event::Tick).renew, Some(TTL), "it is claimed all the same");
}

#[test]
fn the_longest_hold_stops_renewals() {
    let mut lease = lease(LeaseOptions::new(TTL).with_max_hold(Duration::from_secs(4)));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1001), answer(1000, Answer::Renewed(TTL)));
    lease.step(at(2000), Event::Tick);
    lease.step(at(2001), answer(2000, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), at(4000));
    assert_eq!(lease.step(at(4000), Event::Tick).lost, Some(LossReason::Expired));
}

#[test]
fn a_server_that_keeps_a_part_is_asked_again_in_time() {
    let part = |ms: u64, asked| Answer::Part { valid_for: Duration::from_millis(ms), asked };
    let grant = Grant::new(None, at(0), Duration::from_millis(900));
    let mut renewed = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL), Duration::ZERO);
    assert_eq!(renewed.wake_at(), Some(at(300)), "a third of the part, not of the TTL");
    assert_eq!(renewed.step(at(300), Event::Tick).renew, Some(TTL));
    assert_eq!(renewed.step(at(310), answer(300, part(1200, TTL))).wake_at, Some(at(300 + 400)));

    let mut unrenewed = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL).with_auto_renew(false), Duration::ZERO);
    assert_eq!(unrenewed.step(at(300), Event::Tick).renew, Some(Duration::from_millis(2700)), "what is left of it");
    unrenewed.step(at(310), answer(300, part(900, Duration::from_millis(2700))));
    assert_eq!(unrenewed.step(at(600), Event::Tick).renew, Some(Duration::from_millis(2400)));
    unrenewed.step(at(610), answer(600, Answer::Renewed(Duration::from_millis(2400))));
    assert_eq!(unrenewed.step(at(2900), Event::Tick).renew, None, "all of it is kept");
    assert_eq!(unrenewed.step(at(2976), Event::Tick).lost, Some(LossReason::Expired), "and no more");
}

#[test]
fn the_renewal_of_a_part_that_is_never_answered_is_sent_again_before_the_part_ends() {
    let grant = Grant::new(None, at(0), Duration::from_millis(900));
    let mut lease = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL), Duration::ZERO);
    assert_eq!(lease.step(at(300), Event::Tick).wake_at, Some(at(600)));
    assert_eq!(lease.step(at(600), Event::Tick).renew, Some(TTL));
}

#[test]
fn less_than_was_asked_for_is_a_part() {
    let (less, all) = (Duration::from_millis(2999), TTL);
    assert_eq!(Answer::kept(less, all), Answer::Part { valid_for: less, asked: all });
    assert_eq!(Answer::kept(all, all), Answer::Renewed(all));
    assert_eq!(Answer::kept(all, less), Answer::Renewed(all));
}

#[test]
fn a_claim_or_a_part_without_an_answer_is_asked_for_again_also_without_renewal() {
    let unrenewed = LeaseOptions::new(TTL).with_auto_renew(false);
    let part = Grant::new(None, at(0), Duration::from_millis(900));
    for (grant, due) in [(part, 300), (Grant::new(None, at(0), TTL).with_claim(), 20)] {
        let mut lease = LeaseState::new(&grant, at(0), unrenewed, Duration::ZERO);
        assert!(lease.step(at(due), Event::Tick).renew.is_some());
        assert_eq!(lease.step(at(due + 10), answer(due, Answer::Unknown)).wake_at, Some(at(due + 60)));
    }
}

#[test]
fn an_extension_by_hand_is_kept_in_parts_too() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    let (asked, valid_for) = (Duration::from_secs(9), TTL);
    lease.step(at(1000), answer(1000, Answer::Part { valid_for, asked }));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, Some(Duration::from_secs(8)));
}

#[test]
fn a_claim_is_due_almost_at_once_even_without_renewal() {
    let grant = Grant::new(None, at(0), Duration::from_secs(2)).with_claim();
    let mut lease = LeaseState::new(&grant, at(0), LeaseOptions::new(TTL).with_auto_renew(false), Duration::ZERO);
    assert_eq!(lease.step(at(20), Event::Tick).renew, Some(TTL));
    lease.step(at(22), answer(21, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), at(21 + 2970));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
}

#[test]
fn an_extension_by_hand_is_not_shortened_by_the_next_renewal() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(100), answer(100, Answer::Renewed(Duration::from_secs(60))));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
    let due = 100 + 57_000 + 1000;
    assert_eq!(lease.step(at(due), Event::Tick).renew, Some(TTL));
}

#[test]
fn short_extensions_by_hand_put_no_renewal_off() {
    let mut lease = lease(LeaseOptions::new(TTL));
    // Each asks for what is left, which is more than the second that the holder wants.
    for (now, left) in [(900, 2068), (1800, 1168), (2700, 268)] {
        lease.step(at(now), answer(now, Answer::Renewed(Duration::from_millis(left))));
        assert!(lease.wake_at() <= Some(at(1000)), "{:?} after {now} ms", lease.wake_at());
    }
    assert_eq!(lease.step(at(2900), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_long_extension_by_hand_is_followed_by_a_renewal_in_time() {
    // The margin grows with the extension.
    for seconds in [10, 60, 300, 3600, 86_400] {
        let mut lease = lease(LeaseOptions::new(TTL));
        let least = lease.least_left();
        lease.step(at(100), answer(100, Answer::Renewed(Duration::from_secs(seconds))));
        let due = lease.wake_at().unwrap();
        assert_eq!(lease.deadline().since(due), least, "after {seconds} s");
        assert_eq!(lease.step(due, Event::Tick).renew, Some(TTL));
    }
}

#[test]
fn short_extensions_by_hand_put_no_renewal_off_in_parts() {
    let (ttl, part) = (Duration::from_secs(60), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), LeaseOptions::new(ttl), Duration::ZERO);
    let least = lease.least_left();
    for now in (200..3000).step_by(200) {
        let left = lease.deadline().since(at(now)).max(Duration::from_secs(1));
        lease.step(at(now), answer(now, Answer::Renewed(left)));
        assert_eq!((lease.wake_at(), lease.least_left()), (Some(at(3000)), least), "after {now} ms");
    }
    assert_eq!(lease.step(at(3000), Event::Tick).renew, Some(ttl));
}

#[test]
fn a_wish_that_is_no_stronger_hastens_nothing_in_parts() {
    let (options, part) = (LeaseOptions::new(Duration::from_secs(60)), Duration::from_secs(9));
    let mut lease = LeaseState::new(&Grant::new(None, at(0), part), at(0), options, Duration::ZERO);
    assert_eq!(lease.step(at(500), Event::Require(options)).wake_at, Some(at(3000)));
}

#[test]
fn a_server_that_rounds_down_is_not_asked_sooner() {
    let (ttl, kept) = (Duration::from_millis(2900), Duration::from_secs(2));
    let grant = Grant::new(None, at(0), kept);
    let mut lease = LeaseState::new(&grant, at(0), LeaseOptions::new(ttl), Duration::from_secs(1));
    let interval = LeaseOptions::new(ttl).renewal_interval();
    assert_eq!(lease.wake_at(), Some(at(0).plus(interval)));
    lease.step(at(900), Event::Tick);
    let next = lease.step(at(910), answer(900, Answer::Part { valid_for: kept, asked: ttl })).wake_at;
    assert_eq!(next, Some(at(900).plus(interval)));
}

#[test]
fn an_extension_at_the_last_moment_is_followed_by_a_renewal() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(2800), Event::Tick);
    lease.step(at(2850), answer(2800, Answer::Unknown));
    lease.step(at(2900), answer(2890, Answer::Renewed(Duration::from_secs(1))));
    assert_eq!(lease.step(at(2900), Event::Tick).renew, Some(TTL));
}

#[test]
fn a_failed_extension_by_hand_starts_no_renewals() {
    let mut lease = lease(LeaseOptions::new(TTL).with_auto_renew(false));
    lease.step(at(100), answer(100, Answer::Unknown));
    assert_eq!(lease.step(at(1500), Event::Tick).renew, None);
}

#[test]
fn a_renewal_that_was_overtaken_by_an_extension_takes_nothing_away() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    lease.step(at(1100), answer(1050, Answer::Renewed(Duration::from_secs(60))));
    let extended = lease.deadline();
    lease.step(at(1200), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.deadline(), extended);
}

#[test]
fn a_lease_that_is_attended_is_renewed_when_it_is_due_and_then_once_for_each_time_that_its_holder_asks() {
    let mut lease = lease(LeaseOptions::new(TTL));
    assert_eq!(lease.step(at(10), Event::Attend).wake_at, Some(at(1000)), "as it was due");
    assert_eq!(
        lease.step(at(1000), Event::Tick).renew,
        Some(Duration::from_millis(2010)),
        "one TTL from the holder's word on"
    );
    let asked = Duration::from_millis(2010);
    assert_eq!(
        lease.step(at(1100), answer(1000, Answer::Renewed(asked))).wake_at,
        Some(lease.deadline()),
        "no further one"
    );
    assert_eq!(lease.step(at(1200), Event::Prolong).wake_at, Some(at(1200)));
    assert_eq!(lease.step(at(1200), Event::Tick).renew, Some(TTL));
    assert_eq!(lease.step(at(1300), answer(1200, Answer::Renewed(TTL))).wake_at, Some(at(4168)));
    assert_eq!(lease.step(at(2000), Event::Tick).renew, None);
    let again = lease.step(at(2500), Event::Require(LeaseOptions::new(TTL)));
    assert_eq!(again.wake_at, Some(at(2200)), "renewed by itself again, as it was due");
}

/// One after the other, without a pause between them in which the keeper would run.
#[test]
fn short_calls_that_attend_a_lease_do_not_keep_it_from_being_renewed() {
    let (mut lease, mut renewals) = (lease(LeaseOptions::new(TTL)), 0);
    for now in (10..30_000).step_by(20) {
        let _ = lease.step(at(now), Event::Attend);
        if lease.step(at(now), Event::Tick).renew.is_some() {
            renewals += 1;
            let _ = lease.step(at(now + 10), answer(now, Answer::Renewed(TTL)));
        }
        assert!(lease.is_held(at(now + 20)), "at {now}");
        let _ = lease.step(at(now + 20), Event::Require(LeaseOptions::new(TTL)));
    }
    assert!((29..=31).contains(&renewals), "{renewals} in 30 s");
}

#[test]
fn an_attended_lease_lasts_as_long_at_least_as_one_that_is_renewed_by_itself() {
    let mut lease = lease(LeaseOptions::new(TTL));
    let least = lease.least_left();
    let _ = lease.step(at(10), Event::Attend);
    let _ = lease.step(at(1000), Event::Tick);
    let _ = lease.step(at(1001), answer(1000, Answer::Renewed(TTL)));
    assert_eq!(lease.least_left(), least);
}

#[test]
fn an_attended_lease_asks_again_without_an_answer_and_never_for_more_than_one_ttl_from_its_holders_word() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(10), Event::Attend);
    lease.step(at(1000), Event::Prolong);
    lease.step(at(1000), Event::Tick);
    assert_eq!(lease.step(at(1500), answer(1000, Answer::Unknown)).wake_at, Some(at(1550)));
    assert_eq!(lease.step(at(1550), Event::Tick).renew, Some(Duration::from_millis(2450)));
    let asked = Duration::from_millis(2450);
    assert_eq!(lease.step(at(1600), answer(1550, Answer::Renewed(asked))).wake_at, Some(lease.deadline()));
    assert!(lease.deadline() <= at(4000), "{:?}", lease.deadline());
}

#[test]
fn a_lease_whose_holder_is_refused_is_lost_and_given_up_at_the_server() {
    let mut refused = lease(LeaseOptions::new(TTL));
    let actions = refused.step(at(500), Event::Refused);
    assert_eq!((actions.lost, actions.discard), (Some(LossReason::Taken), true));
    let mut released = lease(LeaseOptions::new(TTL));
    released.step(at(500), Event::Release);
    assert_eq!(released.step(at(600), Event::Refused), Actions::default());
}

#[test]
fn a_lease_that_was_extended_for_longer_than_its_holder_asks_for_is_not_renewed_all_the_time() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(0), answer(0, Answer::Renewed(DAY)));
    lease.step(at(10), Event::Attend);
    lease.step(at(1000), Event::Prolong);
    let asked = lease.step(at(1000), Event::Tick).renew.unwrap();
    assert_eq!(lease.step(at(1001), answer(1000, Answer::Renewed(asked))).wake_at, Some(lease.deadline()));
}

/// Every sequence of events of length six, at every order of instants: the invariants that a holder relies on.
#[test]
fn no_sequence_of_events_revives_a_lease_or_tells_a_loss_twice() {
    let events = [
        Event::Tick,
        answer(0, Answer::Renewed(TTL)),
        answer(900, Answer::Renewed(TTL)),
        answer(0, Answer::Unknown),
        answer(0, Answer::Lost(LossReason::Taken)),
        Event::Suspect,
        Event::Attend,
        Event::Prolong,
        Event::Release,
    ];
    let times = [0, 1000, 2967, 2968, 3900, 9000];
    for code in 0..events.len().pow(6) {
        let mut lease = lease(LeaseOptions::new(TTL));
        let (mut rest, mut losses, mut ended) = (code, 0, false);
        for now in times {
            lease.step(at(now), events[rest % events.len()].clone()).lost.iter().for_each(|_| losses += 1);
            rest /= events.len();
            let held = lease.is_held(at(now));
            assert!(!(ended && held), "revived by sequence {code}");
            assert!(!held || now < 900 + 2968, "held past every deadline by sequence {code}");
            ended |= !held;
        }
        assert!(losses <= 1, "told {losses} times by sequence {code}");
    }
}

#[test]
fn a_server_that_keeps_it_for_no_time_is_not_asked_all_the_time() {
    let mut lease = lease(LeaseOptions::new(TTL));
    lease.step(at(1000), Event::Tick);
    let asked_again =
        lease.step(at(1000), answer(1000, Answer::Part { valid_for: Duration::ZERO, asked: TTL })).wake_at;
    assert!(asked_again > Some(at(1000)), "{asked_again:?}");
}
