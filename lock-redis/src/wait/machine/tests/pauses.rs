//! Pauses: the time until the next heartbeat.

use super::super::lock_queue::{LONGEST_PERIOD, PERIOD, SHARED_PERIOD, SHORTEST_PERIOD, interval};
use super::*;

#[test]
fn the_pause_after_a_heartbeat_that_failed_grows_until_one_is_answered() {
    let mut machine = queued(&[1, 2], at(1000));
    let error = Error::unavailable(Phase::Wait, "the cluster is down");
    let mut now = at(3000);
    let mut fails = |machine: &mut Waiters<OneLock, u8>| {
        let due = machine.due(now, 1).0.pop().unwrap();
        let _ = machine.failed(now, &due, &error);
        let pause = machine.next(now).since(now);
        now = now.plus(pause);
        (now, pause.as_millis())
    };
    let pauses = [(); 5].map(|()| fails(&mut machine).1);
    assert_eq!(pauses, [200, 400, 800, 800, 800]);
    let (later, _) = fails(&mut machine);
    let due = machine.due(later, 1).0.pop().unwrap();
    let _ = machine.answered(later, &due, &HeartbeatReply { queued: vec![true; 2], ..reply(later) });
    let again = at(60_000);
    let due = machine.due(again, 1).0.pop().unwrap();
    let _ = machine.failed(again, &due, &error);
    assert_eq!(machine.next(again), again.plus(Duration::from_millis(200)));
}

#[test]
fn a_later_time_to_ask_puts_nothing_off() {
    let mut machine = queued(&[1], at(1000));
    let next = machine.next(at(1000));
    assert!(machine.ask_after(at(1000), "lock", Duration::from_secs(60)));
    assert_eq!(machine.next(at(1000)), next);
}

#[test]
fn a_heartbeat_comes_at_the_end_of_a_lease_and_the_next_one_does_not_hurry() {
    let mut machine = queued(&[1], at(1000));
    let ends = |machine: &mut Waiters<OneLock, u8>, now, in_ms| {
        let due = machine.due(at(now), 1).0.pop().expect("a heartbeat is due");
        let pause = Pause::Until(Duration::from_millis(in_ms));
        let _ = machine.answered(at(now), &due, &HeartbeatReply { pause, ..reply(at(now)) });
        machine.next(at(now))
    };
    assert_eq!(ends(&mut machine, 2000, 120), at(2122));
    // It was renewed, and ends soon again.
    assert!(ends(&mut machine, 2122, 120) >= at(2622));
    assert_eq!(ends(&mut machine, 3000, 120), at(3122));
    // The same for what one who comes into the queue is told.
    let _ = ends(&mut machine, 3122, 120);
    machine.enter(id(2), 2);
    let pause = Pause::Until(Duration::from_millis(120));
    let enqueued = Enqueued { sent_at: at(3130), ticket: 2, known: true, pause, last_token: 0 };
    let _ = machine.queued(at(3130), id(2), &OneLock, enqueued);
    assert!(machine.next(at(3130)) >= at(3622));
}

#[test]
fn a_lease_that_ends_at_the_time_of_the_next_heartbeat_is_no_reason_to_hurry() {
    let mut machine = queued(&[1], at(1000));
    let due = heartbeat(&mut machine, at(2000));
    let pause = Pause::Until(Duration::from_millis(712));
    let _ = machine.answered(at(2000), &due, &HeartbeatReply { pause, ..reply(at(2000)) });
    assert_eq!(machine.next(at(2000)), at(2720), "712.5 ms, and until the next round");
}

#[test]
fn only_a_heartbeat_at_the_end_of_a_lease_counts_as_one_that_hurried() {
    let ending = || HeartbeatReply { pause: Pause::Until(Duration::from_millis(300)), ..reply(at(2000)) };
    for what_comes_first in 0..3 {
        let mut machine = queued(&[1], at(1000));
        let due = heartbeat(&mut machine, at(2000));
        if what_comes_first == 0 {
            // Somebody wants it asked sooner than the lease ends, while a heartbeat is on its way.
            assert!(machine.ask_after(at(2000), "lock", Duration::from_millis(20)));
        }
        let _ = machine.answered(at(2000), &due, &ending());
        match what_comes_first {
            1 => assert!(machine.ask_after(at(2000), "lock", Duration::from_millis(20))),
            2 => machine.begin_anew(at(2020)),
            _ => {}
        }
        let due = machine.due(at(2020), 1).0.pop().expect("sooner than the lease ends");
        let left = HeartbeatReply { pause: Pause::Until(Duration::from_millis(280)), ..reply(at(2020)) };
        let _ = machine.answered(at(2020), &due, &left);
        assert_eq!(machine.next(at(2020)), at(2302), "case {what_comes_first}");
    }
}

#[test]
fn heartbeats_come_at_the_end_of_a_lease_but_at_most_twice_a_second() {
    let now = at(1000);
    assert_eq!(interval(now, false, Pause::Until(Duration::from_millis(1))), SHORTEST_PERIOD);
    assert!(interval(now, false, Pause::Until(Duration::from_secs(30))) <= LONGEST_PERIOD);
    assert_eq!(interval(now, false, Pause::Until(Duration::from_millis(600))), Duration::from_millis(602));
}

#[test]
fn heartbeats_of_different_instants_are_up_to_a_tenth_apart() {
    let regular = |nanos| interval(at(1000).plus(Duration::from_nanos(nanos)), false, Pause::Regular);
    assert_eq!([0, 50, 99].map(regular), [950, 1000, 1049].map(|part| PERIOD * part / 1000));
}

#[test]
fn the_numbers_of_the_server_are_read_as_pauses() {
    let after = |ms| Pause::Until(Duration::from_millis(ms));
    assert_eq!([250, 0].map(Pause::of), [after(250), after(0)]);
    assert_eq!([-3, -4].map(Pause::of), [Pause::None, Pause::Foreign]);
    assert_eq!([-1, -2, -5, -999].map(Pause::of), [Pause::Regular; 4]);
    assert_eq!(Pause::of(-1000), Pause::Free(Duration::ZERO));
}

#[test]
fn a_shared_key_is_asked_for_as_often_as_other_libraries_ask() {
    let now = at(1000);
    for told in [Pause::Regular, Pause::Until(Duration::from_millis(1)), Pause::Until(Duration::from_secs(30))] {
        let pause = interval(now, true, told);
        assert!(pause >= SHARED_PERIOD * 9 / 10 && pause <= SHARED_PERIOD * 11 / 10, "{pause:?} for {told:?}");
    }
}

#[test]
fn a_key_that_was_left_free_is_asked_for_when_that_is_over() {
    let now = at(1000);
    assert_eq!(Pause::of(-1049), Pause::Free(Duration::from_millis(49)));
    assert_eq!(interval(now, true, Pause::of(-1049)), Duration::from_millis(50));
    assert!(interval(now, true, Pause::of(i64::MIN)) <= SHARED_PERIOD * 11 / 10);
}
