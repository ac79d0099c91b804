//! Grants: which news of one count, and from when.

use super::*;

#[test]
fn the_reply_to_an_older_heartbeat_does_not_move_the_question_back() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1000));
    let _ = machine.answered(at(1000), &due, &reply(at(500)));
    assert_eq!(machine.granted(at(1000), granted(1, 1), None), Action::Wake(1));
    assert!(matches!(machine.take_news(at(1000), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1000)));
}

#[test]
fn a_grant_that_a_heartbeat_finds_counts_from_the_heartbeat() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1800));
    let found = HeartbeatReply { queued: vec![false], grants: vec![granted(1, 1)], ..reply(at(1800)) };
    assert_eq!(machine.answered(at(1900), &due, &found).wake, [1]);
    assert!(matches!(machine.take_news(at(1800), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1800)));
}

#[test]
fn a_grant_that_a_heartbeat_finds_counts_although_the_clock_of_the_server_is_behind_that_of_the_one_before() {
    let mut machine = Waiters::default();
    machine.enter(id(1), 1);
    let reply = Enqueued { sent_at: at(1000), ticket: 1, known: true, pause: Pause::Regular, last_token: 100 };
    let _ = machine.queued(at(1000), id(1), &OneLock, reply);
    let due = heartbeat(&mut machine, at(1800));
    let _ = machine.granted(at(1800), granted(1, 50), None);
    assert_eq!(machine.take_news(at(1800), id(1)), None, "one that is pushed may be of an earlier stay");
    let found = HeartbeatReply { queued: vec![false], grants: vec![granted(1, 50)], ..self::reply(at(1800)) };
    assert_eq!(machine.answered(at(1900), &due, &found).wake, [1]);
    assert!(matches!(machine.take_news(at(1800), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1800)));
}

#[test]
fn a_grant_of_an_earlier_stay_does_not_count_by_the_answer_that_queued_its_waiter_anew() {
    let mut machine = Waiters::default();
    machine.enter(id(1), 1);
    let reply = Enqueued { sent_at: at(1000), ticket: 1, known: true, pause: Pause::Regular, last_token: 100 };
    let _ = machine.queued(at(1000), id(1), &OneLock, reply);
    assert_eq!(machine.granted(at(1001), granted(1, 50), Some(at(1000))), Action::Nothing);
    assert_eq!(machine.granted(at(1001), granted(1, 101), Some(at(1000))), Action::Wake(1));
}

#[test]
fn a_grant_that_its_waiter_takes_too_late_is_asked_for_again() {
    for (taken_at, is_in_time) in [(at(1999), true), (at(2000), false), (at(60_000), false)] {
        let mut machine = queued(&[1], at(1000));
        let claim = Granted { valid_for: Duration::from_secs(2), ..granted(1, 1) };
        assert_eq!(machine.granted(at(1100), claim, None), Action::Wake(1));
        let news = machine.take_news(taken_at, id(1)).unwrap();
        assert_eq!(matches!(news, News::Granted(_)), is_in_time, "{news:?} at {taken_at:?}");
    }
}

#[test]
fn a_grant_that_the_server_has_forgotten_is_asked_for_again() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1000));
    assert_eq!(machine.granted(at(1000), granted(1, 1), None), Action::Wake(1));
    let _ = machine.answered(at(1100), &due, &HeartbeatReply { known: false, ..reply(at(1000)) });
    assert_eq!(machine.take_news(at(1100), id(1)), Some(News::AskAgain));
}

#[test]
fn an_answer_that_it_is_still_queued_is_a_newer_question() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1900));
    let _ = machine.answered(at(2000), &due, &reply(at(1900)));
    assert_eq!(machine.granted(at(2100), granted(1, 1), None), Action::Wake(1));
    assert!(matches!(machine.take_news(at(1900), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1900)));
}
