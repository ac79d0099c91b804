//! The agenda: the locks that are asked for, and when none is.

use super::*;

#[test]
fn whoever_begins_anew_asks_again_for_what_the_one_before_had_on_its_way() {
    let mut machine = queued(&[1], at(1000));
    let lost = heartbeat(&mut machine, at(1000));
    machine.ask_all(at(1100));
    assert!(machine.due(at(1100), 1).0.is_empty(), "one is on its way");
    machine.begin_anew(at(1200));
    let due = machine.due(at(1200), 1).0.pop().expect("nobody brings the answer any more");
    assert!(machine.is_wanted(&due) && !machine.is_wanted(&lost));
    assert_eq!(machine.due(at(1200), 1).1, BootInstant::FAR_FUTURE, "one is on its way again");
}

#[test]
fn a_server_that_has_more_to_do_is_asked_to_go_on() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(1000));
    assert!(machine.answered(at(1000), &due, &HeartbeatReply { pause: Pause::None, ..reply(at(1000)) }).ask);
    let (due, _) = machine.due(at(1000), 9);
    assert!(due.len() == 1 && due[0].nonces.is_empty());
}

#[test]
fn of_several_locks_to_go_on_with_no_more_are_due_than_asked_for() {
    let mut machine = Waiters::<NamedLock, u8>::default();
    ["a", "b", "c"].into_iter().for_each(|lock| machine.go_on(NamedLock(lock)));
    let (mut due, next) = machine.due(at(1000), 2);
    assert_eq!((due.len(), next), (2, at(1000)), "the third one is due at once");
    due.extend(machine.due(at(1000), 2).0);
    let mut locks: Vec<_> = due.iter().map(|due| due.lock.0).collect();
    locks.sort_unstable();
    assert_eq!((locks, due.iter().map(|due| due.number).collect::<Vec<_>>()), (vec!["a", "b", "c"], vec![1, 2, 3]));
}

#[test]
fn locks_that_are_due_at_one_instant_are_all_asked_for() {
    let mut machine = Waiters::<NamedLock, u8>::default();
    for (waiter, lock) in [(1, "a"), (2, "b")] {
        machine.enter(id(waiter), waiter);
        let (sent_at, ticket, pause) = (at(1000), waiter.into(), Pause::Regular);
        let reply = Enqueued { sent_at, ticket, known: true, pause, last_token: 0 };
        let _ = machine.queued(at(1000), id(waiter), &NamedLock(lock), reply);
    }
    machine.ask_all(at(1000));
    let (due, next) = machine.due(at(1000), 9);
    assert_eq!(due.iter().map(|due| due.lock.0).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(next, BootInstant::FAR_FUTURE, "both are on their way");
}

#[test]
fn a_lock_is_busy_while_it_is_waited_for_and_for_a_while_after_it_was_found_held() {
    let mut machine = queued(&[1], at(1000));
    assert!(machine.is_busy(at(1000), "lock") && !machine.is_busy(at(1000), "other") && !machine.is_idle());
    machine.leave(id(1), &OneLock, true);
    assert!(!machine.is_busy(at(1000), "lock") && machine.is_idle());
    machine.found_held(at(1000), "other");
    assert!(machine.is_busy(at(1000), "other") && !machine.is_busy(at(9000), "other") && !machine.is_idle());
    machine.found_free("other");
    assert!(!machine.is_busy(at(1000), "other") && machine.is_idle());
}

#[test]
fn who_has_left_is_not_asked_for() {
    let mut machine = queued(&[1, 2], at(1000));
    machine.leave(id(1), &OneLock, true);
    assert_eq!(heartbeat(&mut machine, at(1000)).nonces, [id(2)]);
}

#[test]
fn whoever_is_queued_anew_has_no_place_by_its_earlier_ticket() {
    let mut machine = Waiters::default();
    machine.enter(id(1), 1);
    for ticket in [20, 10] {
        let reply = Enqueued { sent_at: at(1000), ticket, known: true, pause: Pause::Regular, last_token: 0 };
        let _ = machine.queued(at(1000), id(1), &OneLock, reply);
    }
    assert_eq!(heartbeat(&mut machine, at(1000)).nonces, [id(1)]);
    machine.leave(id(1), &OneLock, true);
    assert!(machine.is_empty());
}
