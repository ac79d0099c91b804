//! Tests of the machine, event by event.

use lock_core::{FencingToken, Phase};

use super::*;

#[derive(Debug, Clone, PartialEq, Eq)]
struct OneLock;

impl Lock for OneLock {
    fn name(&self) -> &str {
        "lock"
    }

    fn is_shared(&self) -> bool {
        false
    }
}

fn at(ms: u64) -> BootInstant {
    BootInstant::from_origin(Duration::from_millis(ms))
}

fn id(waiter: u8) -> GrantId {
    GrantId::from_bytes([waiter; 16])
}

fn granted(waiter: u8, token: u64) -> Granted {
    Granted { nonce: id(waiter), token: FencingToken::new(token).unwrap(), claim: Duration::from_secs(2) }
}

fn reply(sent_at: BootInstant) -> HeartbeatReply {
    let (pause, queued) = (Pause::Regular, vec![true]);
    HeartbeatReply { sent_at, known: true, pause, last_token: None, queued, holder: None, grants: Vec::new() }
}

/// A machine with these waiters, queued by requests that were sent and answered at one instant.
fn queued(waiters: &[u8], now: BootInstant) -> Waiters<OneLock, u8> {
    let mut machine = Waiters::default();
    for waiter in waiters {
        machine.enter(id(*waiter), *waiter);
        let (sent_at, ticket, pause) = (now, (*waiter).into(), Pause::Regular);
        let reply = Enqueued { sent_at, ticket, known: true, pause, last_token: 0 };
        let actions = machine.queued(now, id(*waiter), &OneLock, reply);
        assert_eq!(actions.ask, *waiter == waiters[0], "the heartbeat task is told of a new queue");
    }
    machine
}

fn beat(machine: &mut Waiters<OneLock, u8>, now: BootInstant) -> DueHeartbeat<OneLock> {
    machine.ask_all(now);
    machine.due(now, 1).0.pop().unwrap()
}

#[test]
fn the_reply_to_an_older_heartbeat_does_not_move_the_question_back() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1000));
    let _ = machine.answered(at(1000), &due, &reply(at(500)));
    assert_eq!(machine.granted(at(1000), granted(1, 1), None), Action::Wake(1));
    assert!(matches!(machine.take_news(id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1000)));
}

#[test]
fn a_grant_that_a_heartbeat_finds_counts_from_the_heartbeat() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1800));
    let found = HeartbeatReply { queued: vec![false], grants: vec![granted(1, 1)], ..reply(at(1800)) };
    assert_eq!(machine.answered(at(1900), &due, &found).wake, [1]);
    assert!(matches!(machine.take_news(id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1800)));
}

#[test]
fn a_grant_that_the_server_has_forgotten_is_asked_for_again() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1000));
    assert_eq!(machine.granted(at(1000), granted(1, 1), None), Action::Wake(1));
    let _ = machine.answered(at(1100), &due, &HeartbeatReply { known: false, ..reply(at(1000)) });
    assert_eq!(machine.take_news(id(1)), Some(News::AskAgain));
}

#[test]
fn only_a_single_waiter_has_short_heartbeats_and_one_that_fails_is_repeated_at_once_in_the_long_way() {
    let mut machine = queued(&[1, 2], at(1000));
    let next = |machine: &mut Waiters<OneLock, u8>, now| {
        let due: DueHeartbeat<OneLock> = machine.due(now, 1).0.pop().unwrap();
        let _ = machine.answered(now, &due, &HeartbeatReply { queued: vec![true; due.nonces.len()], ..reply(now) });
        due.quiet
    };
    assert!(!next(&mut machine, at(3000)) && !next(&mut machine, at(5000)));
    machine.leave(id(2), &OneLock, true);
    assert!(next(&mut machine, at(7000)));
    assert_eq!(machine.next(at(7000)).since_origin().as_millis() % 40, 0, "in the next round");
    let due = machine.due(at(9000), 1).0.pop().unwrap();
    let error = Error::unavailable(Phase::Wait, "no");
    assert!(machine.failed(at(9000), &due, &error).is_empty(), "that passes by itself");
    assert!(machine.refused(&OneLock).is_some() && machine.next(at(9000)) == at(9000));
    assert!(!next(&mut machine, at(9000)));
    assert!(machine.refused(&OneLock).is_none());
    assert_eq!(machine.silent_since(id(1), &OneLock), Some(at(9935)));
}

#[test]
fn a_server_that_has_more_to_do_is_asked_to_go_on() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1000));
    assert!(machine.answered(at(1000), &due, &HeartbeatReply { pause: Pause::None, ..reply(at(1000)) }).ask);
    let (due, _) = machine.due(at(1000), 9);
    assert!(due.len() == 1 && due[0].nonces.is_empty());
}

#[test]
fn who_has_left_is_not_asked_for() {
    let mut machine = queued(&[1, 2], at(1000));
    machine.leave(id(1), &OneLock, true);
    assert_eq!(beat(&mut machine, at(1000)).nonces, [id(2)]);
}
