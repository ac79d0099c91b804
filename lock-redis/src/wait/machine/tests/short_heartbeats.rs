//! Short heartbeats: who has them, and what is left to long ones.

use super::*;

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
    assert!(machine.failed(at(9000), &due, &error).wake.is_empty(), "that passes by itself");
    assert!(machine.refused(&OneLock).is_some() && machine.next(at(9000)) == at(9000));
    assert!(!next(&mut machine, at(9000)));
    assert!(machine.refused(&OneLock).is_none());
    assert_eq!(machine.silent_since(id(1), &OneLock), Some(at(9_830)));
}

#[test]
fn a_short_heartbeat_that_finds_something_for_a_long_one_is_followed_by_it_at_once() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1000));
    let _ = machine.answered(at(1000), &due, &reply(at(1000)));
    let short = machine.due(at(3000), 1).0.pop().unwrap();
    assert!(short.quiet);
    machine.stays_due(at(3010), &short);
    assert_eq!(machine.next(at(3010)), at(3010));
    let long = machine.due(at(3010), 1).0.pop().unwrap();
    assert!(!long.quiet && long.nonces == [id(1)]);
}

#[test]
fn a_short_heartbeat_that_finds_the_grant_of_an_attempt_that_gave_up_is_followed_by_a_long_one_that_brings_it() {
    for is_settled in [false, true] {
        let mut machine = queued(&[1, 2], at(1000));
        machine.leave(id(2), &OneLock, false);
        if is_settled {
            machine.forget(id(2));
        }
        let due = heartbeat(&mut machine, at(1000));
        let _ = machine.answered(at(1000), &due, &reply(at(1000)));
        let short = machine.due(at(3000), 1).0.pop().unwrap();
        let holder = KnownHolder::new("0202020202020202", at(3000), Duration::from_secs(2));
        let _ = machine.answered(at(3010), &short, &HeartbeatReply { holder, ..reply(at(3000)) });
        assert_eq!((short.quiet, machine.next(at(3010)) == at(3010)), (true, !is_settled));
        if !is_settled {
            let long = machine.due(at(3010), 1).0.pop().unwrap();
            let found = HeartbeatReply { grants: vec![granted(2, 1)], ..reply(at(3010)) };
            assert!(!long.quiet && machine.answered(at(3020), &long, &found).ask);
            assert_eq!(machine.take_unwanted(1), [(id(2), OneLock)]);
        }
    }
}

#[test]
fn after_sixty_three_short_heartbeats_comes_a_long_one() {
    let mut machine = queued(&[1], at(1000));
    let quiet = |second: u64| {
        let now = at(1000 * second);
        let due = machine.due(now, 1).0.pop().unwrap();
        let _ = machine.answered(now, &due, &reply(now));
        due.quiet
    };
    let quiet: Vec<_> = (2..68).map(quiet).collect();
    assert_eq!(quiet, [vec![false], vec![true; 63], vec![false, true]].concat());
}

#[test]
fn a_holder_is_named_while_its_lease_lasts_beyond_the_next_heartbeat() {
    for (ends_in, is_named) in [(30, true), (3, false)] {
        let mut machine = queued(&[1], at(1000));
        let due = heartbeat(&mut machine, at(1000));
        let holder = KnownHolder::new("0123456789abcdef", at(1000), Duration::from_secs(ends_in));
        let _ = machine.answered(at(1000), &due, &reply(at(1000)));
        let due = machine.due(at(2000), 1).0.pop().unwrap();
        let _ = machine.answered(at(2000), &due, &HeartbeatReply { holder, ..reply(at(2000)) });
        let due = machine.due(at(3500), 1).0.pop().unwrap();
        let named = due.holder.map(|holder| holder.beginning().to_owned());
        assert_eq!(named.as_deref(), is_named.then_some("0123456789abcdef"));
    }
}
