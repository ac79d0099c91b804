//! Crowds: more waiters than a heartbeat asks for, and those who have been told.

use super::super::lock_queue::{ASKED, LONGEST_PERIOD, SHORTEST_PERIOD, SOON};
use super::*;

/// One more waiter than a heartbeat asks for.
fn crowd() -> Vec<u8> {
    (1..).take(ASKED + 1).collect()
}

#[test]
fn waiters_that_have_been_told_are_not_asked_for_until_they_have_heard_it() {
    let mut machine = queued(&crowd(), at(1000));
    let last = id(65);
    let due = heartbeat(&mut machine, at(2000));
    assert!(due.nonces.len() == ASKED && !due.nonces.contains(&last));
    // The first one is woken, and does not come to run.
    let gone = [vec![false], vec![true; ASKED - 1]].concat();
    assert_eq!(machine.answered(at(2000), &due, &HeartbeatReply { queued: gone, ..reply(at(2000)) }).wake, [1]);
    assert_eq!(machine.next(at(2000)), at(2000).plus(SOON), "news of others may be lost too");
    let due = machine.due(at(2005), 1).0.pop().unwrap();
    assert!(due.nonces.len() == ASKED && due.nonces.contains(&last) && !due.nonces.contains(&id(1)));
    // Nobody else has been let in: the second one has been told of its grant meanwhile.
    assert_eq!(machine.granted(at(2005), granted(2, 1), None), Action::Wake(2));
    let mut told = HeartbeatReply { queued: vec![true; ASKED], grants: vec![granted(2, 1)], ..reply(at(2005)) };
    told.queued[0] = false;
    let _ = machine.answered(at(2006), &due, &told);
    assert!(machine.next(at(2006)) >= at(2006).plus(SHORTEST_PERIOD), "nothing was lost");
    assert_eq!(machine.take_news(at(2006), id(1)), Some(News::AskAgain));
    assert_eq!(heartbeat(&mut machine, at(3000)).nonces[..2], [id(1), id(3)]);
}

#[test]
fn a_heartbeat_that_has_asked_for_all_who_wait_for_news_is_not_repeated_at_once() {
    let mut machine = queued(&crowd(), at(1000));
    let first = heartbeat(&mut machine, at(2000));
    let gone = |due: &DueHeartbeat<OneLock>| {
        let queued = [vec![false], vec![true; due.nonces.len() - 1]].concat();
        HeartbeatReply { queued, ..reply(at(2000)) }
    };
    let _ = machine.answered(at(2000), &first, &gone(&first));
    // All of them are asked for, but for the one that has been told.
    let second = machine.due(at(2005), 1).0.pop().unwrap();
    let _ = machine.answered(at(2005), &second, &gone(&second));
    assert!(machine.next(at(2005)) >= at(2005).plus(SHORTEST_PERIOD));
}

/// The server has dropped the client, and says so in the reply to the first request that comes back; that reply was lost.
#[test]
fn all_of_a_crowd_ask_again_when_those_who_were_asked_for_are_gone() {
    let crowd: Vec<_> = (1..).take(3 * ASKED).collect();
    let mut machine = queued(&crowd, at(1000));
    assert_eq!(machine.granted(at(1500), granted(192, 1), None), Action::Wake(192));
    let due = heartbeat(&mut machine, at(2000));
    let mut told =
        machine.answered(at(2020), &due, &HeartbeatReply { queued: vec![false; ASKED], ..reply(at(2000)) }).wake;
    told.sort_unstable();
    assert_eq!(told, crowd[..crowd.len() - 1], "one has a grant");
    // One that has asked since is in its place.
    let queued_anew = Enqueued { sent_at: at(2030), ticket: 1, known: true, pause: Pause::Regular, last_token: 0 };
    assert_eq!(machine.take_news(at(2030), id(1)), Some(News::AskAgain));
    let _ = machine.queued(at(2040), id(1), &OneLock, queued_anew);
    let told = machine.answered(at(2050), &due, &HeartbeatReply { queued: vec![false; ASKED], ..reply(at(2000)) }).wake;
    assert!(!told.contains(&1), "{told:?}");
}

/// As the README tells it.
#[test]
fn news_of_a_crowd_that_were_lost_at_once_come_back_sixty_four_in_each_round_trip() {
    const CROWD: usize = 250;
    const ROUND_TRIP: Duration = Duration::from_millis(20);
    let crowd: Vec<_> = (1..).take(CROWD).collect();
    let mut machine = queued(&crowd, at(1000));
    machine.ask_all(at(2000));
    let (mut now, mut told) = (at(2000), Vec::new());
    while told.len() < CROWD {
        let due = machine.due(now, 1).0.pop().unwrap();
        assert_eq!(due.nonces.len(), 64.min(CROWD - told.len()));
        let grants = due.nonces.iter().map(|nonce| Granted { nonce: *nonce, ..granted(1, 1) }).collect();
        let reply = HeartbeatReply { queued: vec![false; due.nonces.len()], grants, ..reply(now) };
        now = now.plus(ROUND_TRIP);
        told.extend(machine.answered(now, &due, &reply).wake);
        let pause = machine.next(now).since(now);
        assert!(pause == SOON || told.len() == CROWD, "{pause:?} after {} were told", told.len());
        now = now.plus(SOON);
    }
    told.sort_unstable();
    assert_eq!(told, crowd);
    assert_eq!(now, at(2000).plus((ROUND_TRIP + SOON) * 4));
}

#[test]
fn a_client_whose_waiters_have_all_been_told_gives_a_sign_of_life_all_the_same() {
    let mut machine = queued(&[1], at(1000));
    let mut now = at(2000);
    let mut due = heartbeat(&mut machine, now);
    for _ in 0..3 {
        assert_eq!(due.nonces, [id(1)]);
        let _ = machine.answered(now, &due, &HeartbeatReply { queued: vec![false], ..reply(now) });
        let next = machine.next(now);
        assert!(next >= now.plus(SHORTEST_PERIOD) && next <= now.plus(LONGEST_PERIOD));
        due = machine.due(next, 1).0.pop().unwrap();
        now = next;
    }
}
