//! Renewals: when they are due, and what their answers change.

use super::*;

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
fn the_pause_after_an_unknown_answer_doubles_up_to_a_second_and_begins_anew() {
    let mut lease = lease(LeaseOptions::new(TTL));
    for pause in [50, 100, 200, 400, 800, 1000, 1000] {
        assert_eq!(lease.step(at(500), answer(400, Answer::Unknown)).wake_at, Some(at(500 + pause)));
    }
    lease.step(at(600), answer(600, Answer::Renewed(TTL)));
    assert_eq!(lease.step(at(700), answer(600, Answer::Held)).wake_at, Some(at(750)));
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
fn less_than_was_asked_for_is_a_part() {
    let (less, all) = (Duration::from_millis(2999), TTL);
    assert_eq!(Answer::kept(less, all), Answer::Part { valid_for: less, asked: all });
    assert_eq!(Answer::kept(all, all), Answer::Renewed(all));
    assert_eq!(Answer::kept(all, less), Answer::Renewed(all));
}
