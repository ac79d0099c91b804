//! Tests of the machine, event by event.

use lock_core::{FencingToken, Phase};

use super::lock_queue::{ASKED, LONGEST_PERIOD, PERIOD, SHARED_PERIOD, SHORTEST_PERIOD, SOON, interval};
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

#[derive(Debug, Clone, PartialEq, Eq)]
struct NamedLock(&'static str);

impl Lock for NamedLock {
    fn name(&self) -> &str {
        self.0
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
    Granted { nonce: id(waiter), token: FencingToken::new(token).unwrap(), valid_for: Duration::from_secs(2) }
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
    assert!(matches!(machine.take_news(at(1000), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1000)));
}

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
fn whoever_begins_anew_asks_again_for_what_the_one_before_had_on_its_way() {
    let mut machine = queued(&[1], at(1000));
    let lost = beat(&mut machine, at(1000));
    machine.ask_all(at(1100));
    assert!(machine.due(at(1100), 1).0.is_empty(), "one is on its way");
    machine.begin_anew(at(1200));
    let due = machine.due(at(1200), 1).0.pop().expect("nobody brings the answer any more");
    assert!(machine.is_wanted(&due) && !machine.is_wanted(&lost));
    assert_eq!(machine.due(at(1200), 1).1, BootInstant::FAR_FUTURE, "one is on its way again");
}

#[test]
fn a_grant_that_a_heartbeat_finds_counts_from_the_heartbeat() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1800));
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
    let due = beat(&mut machine, at(1800));
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
    let due = beat(&mut machine, at(1000));
    assert_eq!(machine.granted(at(1000), granted(1, 1), None), Action::Wake(1));
    let _ = machine.answered(at(1100), &due, &HeartbeatReply { known: false, ..reply(at(1000)) });
    assert_eq!(machine.take_news(at(1100), id(1)), Some(News::AskAgain));
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
    assert!(machine.failed(at(9000), &due, &error).wake.is_empty(), "that passes by itself");
    assert!(machine.refused(&OneLock).is_some() && machine.next(at(9000)) == at(9000));
    assert!(!next(&mut machine, at(9000)));
    assert!(machine.refused(&OneLock).is_none());
    assert_eq!(machine.silent_since(id(1), &OneLock), Some(at(9_830)));
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
fn a_short_heartbeat_that_finds_something_for_a_long_one_is_followed_by_it_at_once() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1000));
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
        let due = beat(&mut machine, at(1000));
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
    assert_eq!(beat(&mut machine, at(1000)).nonces, [id(2)]);
}

#[test]
fn whoever_is_queued_anew_has_no_place_by_its_earlier_ticket() {
    let mut machine = Waiters::default();
    machine.enter(id(1), 1);
    for ticket in [20, 10] {
        let reply = Enqueued { sent_at: at(1000), ticket, known: true, pause: Pause::Regular, last_token: 0 };
        let _ = machine.queued(at(1000), id(1), &OneLock, reply);
    }
    assert_eq!(beat(&mut machine, at(1000)).nonces, [id(1)]);
    machine.leave(id(1), &OneLock, true);
    assert!(machine.is_empty());
}

/// One more waiter than a heartbeat asks for.
fn crowd() -> Vec<u8> {
    (1..).take(ASKED + 1).collect()
}

#[test]
fn waiters_that_have_been_told_are_not_asked_for_until_they_have_heard_it() {
    let mut machine = queued(&crowd(), at(1000));
    let last = id(65);
    let due = beat(&mut machine, at(2000));
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
    assert_eq!(beat(&mut machine, at(3000)).nonces[..2], [id(1), id(3)]);
}

#[test]
fn a_heartbeat_that_has_asked_for_all_who_wait_for_news_is_not_repeated_at_once() {
    let mut machine = queued(&crowd(), at(1000));
    let first = beat(&mut machine, at(2000));
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
    let due = beat(&mut machine, at(2000));
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
    let mut due = beat(&mut machine, now);
    for _ in 0..3 {
        assert_eq!(due.nonces, [id(1)]);
        let _ = machine.answered(now, &due, &HeartbeatReply { queued: vec![false], ..reply(now) });
        let next = machine.next(now);
        assert!(next >= now.plus(SHORTEST_PERIOD) && next <= now.plus(LONGEST_PERIOD));
        due = machine.due(next, 1).0.pop().unwrap();
        now = next;
    }
}

#[test]
fn an_answer_that_it_is_still_queued_is_a_newer_question() {
    let mut machine = queued(&[1], at(1000));
    let due = beat(&mut machine, at(1900));
    let _ = machine.answered(at(2000), &due, &reply(at(1900)));
    assert_eq!(machine.granted(at(2100), granted(1, 1), None), Action::Wake(1));
    assert!(matches!(machine.take_news(at(1900), id(1)), Some(News::Granted(grant)) if grant.sent_at == at(1900)));
}

#[test]
fn a_later_time_to_ask_puts_nothing_off() {
    let mut machine = queued(&[1], at(1000));
    let next = machine.next(at(1000));
    assert!(machine.ask_after(at(1000), "lock", Duration::from_secs(60)));
    assert_eq!(machine.next(at(1000)), next);
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
        let due = beat(&mut machine, at(1000));
        let holder = KnownHolder::new("0123456789abcdef", at(1000), Duration::from_secs(ends_in));
        let _ = machine.answered(at(1000), &due, &reply(at(1000)));
        let due = machine.due(at(2000), 1).0.pop().unwrap();
        let _ = machine.answered(at(2000), &due, &HeartbeatReply { holder, ..reply(at(2000)) });
        let due = machine.due(at(3500), 1).0.pop().unwrap();
        let named = due.holder.map(|holder| holder.beginning().to_owned());
        assert_eq!(named.as_deref(), is_named.then_some("0123456789abcdef"));
    }
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
    let due = beat(&mut machine, at(2000));
    let pause = Pause::Until(Duration::from_millis(712));
    let _ = machine.answered(at(2000), &due, &HeartbeatReply { pause, ..reply(at(2000)) });
    assert_eq!(machine.next(at(2000)), at(2720), "712.5 ms, and until the next round");
}

#[test]
fn only_a_heartbeat_at_the_end_of_a_lease_counts_as_one_that_hurried() {
    let ending = || HeartbeatReply { pause: Pause::Until(Duration::from_millis(300)), ..reply(at(2000)) };
    for what_comes_first in 0..3 {
        let mut machine = queued(&[1], at(1000));
        let due = beat(&mut machine, at(2000));
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
