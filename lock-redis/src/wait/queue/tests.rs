//! Tests of the queues, by the answers that they are given.

use lock_core::FencingToken;
use lock_core::driver::Kind;

use super::super::machine::*;
use super::*;
use crate::store::dialect::Dialects;
use crate::store::keys::KeySpace;

fn keys(name: &str) -> Arc<Keys> {
    Arc::new(KeySpace::new("t".to_owned(), Dialects::new()).of(&name.into(), Kind::Mutex))
}

fn waiters() -> (Arc<WaitQueues>, Arc<Keys>, GrantId) {
    (Arc::default(), keys("a"), GrantId::random().unwrap())
}

fn token(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap()
}

const CLAIM: Duration = Duration::from_secs(2);

fn queued(sent_at: BootInstant, ticket: u64, last_token: u64) -> Enqueued {
    Enqueued { sent_at, ticket, known: true, pause: Pause::Regular, last_token }
}

fn grant(nonce: GrantId, value: u64) -> Granted {
    Granted { nonce, token: token(value), valid_for: CLAIM }
}

#[tokio::test]
async fn a_push_is_believed_from_the_last_question_only() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiters.granted(grant(nonce, 1), None);
    assert_eq!(waiting.news().await, News::AskAgain, "nothing was asked yet");
    let asked = SystemClock.now();
    waiting.queued(queued(asked, 7, 0));
    waiters.granted(grant(nonce, 2), None);
    let News::Granted(grant) = waiting.news().await else { panic!("asked for, and granted since") };
    assert_eq!((grant.sent_at, grant.valid_for, grant.claim), (asked, CLAIM, true));
}

#[tokio::test]
async fn a_push_from_an_earlier_stay_in_the_queue_is_ignored() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiting.queued(queued(SystemClock.now(), 7, 5));
    waiting.queued(queued(SystemClock.now(), 7, 9));
    waiters.granted(grant(nonce, 9), None);
    assert!(futures_util::FutureExt::now_or_never(waiting.news()).is_none());
    waiters.granted(grant(nonce, 10), None);
    assert!(matches!(waiting.news().await, News::Granted(_)));
}

#[tokio::test]
async fn a_grant_that_was_over_when_the_waiter_was_queued_again_is_no_news() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiting.queued(queued(SystemClock.now(), 7, 0));
    // It asks again; meanwhile a heartbeat tells of a grant that ends before the server answers.
    waiters.granted(grant(nonce, 5), Some(SystemClock.now()));
    waiting.queued(queued(SystemClock.now(), 7, 5));
    assert!(futures_util::FutureExt::now_or_never(waiting.news()).is_none());
    // One that was pushed after the answer, and came before it, is none of an earlier stay.
    waiters.granted(grant(nonce, 6), None);
    waiting.queued(queued(SystemClock.now(), 7, 5));
    assert!(matches!(waiting.news().await, News::Granted(_)));
}

#[tokio::test]
async fn a_heartbeat_finds_lost_grants_and_lost_places() {
    let (waiters, keys, first) = waiters();
    let second = GrantId::random().unwrap();
    let places = [first, second].map(|nonce| waiters.enter(nonce, &keys));
    for (ticket, place) in places.iter().enumerate() {
        place.queued(queued(SystemClock.now(), ticket as u64, 0));
    }
    waiters.ask_all();
    let (due, _) = waiters.due(usize::MAX);
    assert_eq!(due[0].nonces, [first, second]);
    assert!(waiters.due(usize::MAX).0.is_empty(), "one heartbeat at a time");
    waiters.unanswered(&due[0], &Error::unavailable(lock_core::Phase::Wait, "no"));
    waiters.ask_all();
    assert_ne!(waiters.due(usize::MAX).0[0].number, due[0].number, "the reply to one would be taken for the other's");
    let answer = HeartbeatReply {
        sent_at: SystemClock.now(),
        known: true,
        pause: Pause::Until(CLAIM),
        last_token: Some(0),
        queued: vec![false, false],
        holder: None,
        grants: vec![grant(first, 3)],
    };
    waiters.answered(&due[0], &answer);
    assert!(matches!(places[0].news().await, News::Granted(_)));
    assert_eq!(places[1].news().await, News::AskAgain);
}

#[tokio::test]
async fn who_asked_after_a_server_that_had_forgotten_is_not_forgotten() {
    let (waiters, keys, _) = waiters();
    let enter = || waiters.enter(GrantId::random().unwrap(), &keys);
    let told = |waiting: &WaiterGuard| futures_util::FutureExt::now_or_never(waiting.news());
    let (early, first, later) = (enter(), enter(), enter());
    let asked = SystemClock.now();
    let after = asked.plus(Duration::from_nanos(1));
    // The reply to the request that found a server without memory is read after the reply to a later one.
    early.queued(queued(asked, 1, 0));
    later.queued(queued(after, 3, 0));
    first.queued(Enqueued { known: false, ..queued(asked, 2, 0) });
    assert_eq!((told(&early), told(&first), told(&later)), (Some(News::AskAgain), None, None));
    waiters.ask_all();
    let (due, _) = waiters.due(usize::MAX);
    let unknown = HeartbeatReply {
        sent_at: asked,
        known: false,
        pause: Pause::Regular,
        last_token: Some(0),
        queued: Vec::new(),
        holder: None,
        grants: Vec::new(),
    };
    waiters.answered(&due[0], &unknown);
    assert_eq!((told(&early), told(&later)), (Some(News::AskAgain), None));
    waiters.ask_all();
    let (due, _) = waiters.due(usize::MAX);
    waiters.answered(&due[0], &HeartbeatReply { known: true, queued: vec![false; 3], ..unknown });
    assert_eq!((told(&early), told(&later)), (Some(News::AskAgain), None));
}

#[test]
fn where_a_heartbeat_found_lost_news_those_it_could_not_ask_for_are_asked_for_soon() {
    let (waiters, keys, _) = waiters();
    let places: Vec<_> = (0..=ASKED).map(|_| waiters.enter(GrantId::random().unwrap(), &keys)).collect();
    for (ticket, place) in places.iter().enumerate() {
        place.queued(queued(SystemClock.now(), ticket as u64, 0));
    }
    let answered = |lost: bool| {
        waiters.ask_all();
        let (due, _) = waiters.due(usize::MAX);
        assert_eq!(due[0].nonces.len(), ASKED);
        let mut queued = vec![true; ASKED];
        queued[0] = !lost;
        let answer = HeartbeatReply {
            sent_at: SystemClock.now(),
            known: true,
            pause: Pause::Until(CLAIM),
            last_token: Some(0),
            queued,
            holder: None,
            grants: Vec::new(),
        };
        waiters.answered(&due[0], &answer);
        let (_, next) = waiters.due(usize::MAX);
        next
    };
    assert!(answered(false) > SystemClock.now().plus(SHORTEST_PERIOD / 2), "no news were lost");
    assert!(answered(true) <= SystemClock.now().plus(SOON));
}

#[test]
fn what_is_due_is_told_in_its_order_and_not_more_than_asked_for() {
    let (waiters, ..) = waiters();
    let keys: Vec<_> = ["a", "b", "c"].map(keys).into();
    let places: Vec<_> = keys.iter().map(|keys| waiters.enter(GrantId::random().unwrap(), keys)).collect();
    places.iter().for_each(|place| place.queued(queued(SystemClock.now(), 1, 0)));
    for lock in [1, 0, 2] {
        waiters.ask_after(&keys[lock].lock, Duration::ZERO);
        std::thread::sleep(Duration::from_micros(10));
    }
    let (first, next) = waiters.due(2);
    assert_eq!(first.iter().map(|due| &due.lock).collect::<Vec<_>>(), [&keys[1], &keys[0]]);
    assert!(next <= SystemClock.now());
    let (rest, next) = waiters.due(2);
    assert_eq!((&rest[0].lock, next), (&keys[2], BootInstant::FAR_FUTURE));
    drop(places);
    waiters.unanswered(&rest[0], &Error::unavailable(lock_core::Phase::Wait, "no"));
    assert_eq!(waiters.due(2).1, BootInstant::FAR_FUTURE, "nobody waits");
}

#[test]
fn a_heartbeat_that_fails_is_tried_again_at_once_if_that_was_asked_for_meanwhile() {
    let (waiters, keys, nonce) = waiters();
    let place = waiters.enter(nonce, &keys);
    place.queued(queued(SystemClock.now(), 1, 0));
    waiters.ask_all();
    let (due, _) = waiters.due(1);
    waiters.ask_after(&keys.lock, Duration::ZERO);
    waiters.unanswered(&due[0], &Error::unavailable(lock_core::Phase::Wait, "no"));
    assert_eq!(waiters.due(1).0.len(), 1);
}

#[test]
fn a_waiter_that_had_asked_before_news_were_lost_is_asked_for_as_soon_as_it_is_queued() {
    for is_before in [true, false] {
        let (waiters, keys, nonce) = waiters();
        let place = waiters.enter(nonce, &keys);
        let before = SystemClock.now();
        waiters.news_lost(&keys.lock);
        let sent_at = if is_before { before } else { SystemClock.now().plus(Duration::from_millis(1)) };
        place.queued(queued(sent_at, 1, 0));
        assert_eq!(waiters.due(1).0.len(), usize::from(is_before));
    }
}

#[test]
fn what_a_guard_of_this_client_holds_is_no_news() {
    let (waiters, keys, _) = waiters();
    let places: Vec<_> = (0..=ASKED).map(|_| waiters.enter(GrantId::random().unwrap(), &keys)).collect();
    for (ticket, place) in places.iter().enumerate() {
        place.queued(queued(SystemClock.now(), ticket as u64, 0));
    }
    waiters.ask_all();
    let (due, _) = waiters.due(1);
    let answer = HeartbeatReply {
        sent_at: SystemClock.now(),
        known: true,
        pause: Pause::Regular,
        last_token: Some(1),
        queued: vec![true; ASKED],
        holder: None,
        grants: vec![grant(GrantId::random().unwrap(), 1)],
    };
    waiters.answered(&due[0], &answer);
    assert!(waiters.due(1).1 > SystemClock.now().plus(SHORTEST_PERIOD / 2));
}

#[tokio::test]
async fn a_server_whose_clock_is_behind_is_believed_once_it_has_said_what_it_gave_last() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiting.queued(queued(SystemClock.now(), 7, 1000));
    waiters.ask_all();
    let (due, _) = waiters.due(1);
    let now = SystemClock.now();
    let answer = HeartbeatReply {
        sent_at: now,
        known: true,
        pause: Pause::Regular,
        last_token: Some(500),
        queued: vec![true],
        holder: None,
        grants: Vec::new(),
    };
    waiters.answered(&due[0], &answer);
    waiters.granted(grant(nonce, 501), None);
    assert!(matches!(waiting.news().await, News::Granted(_)));
}

#[test]
fn a_waiter_that_gave_up_is_forgotten_with_its_clean_up() {
    let (waiters, keys, nonce) = waiters();
    drop(waiters.enter(nonce, &keys));
    waiters.forget(nonce);
    assert!(waiters.lock().is_empty());
    waiters.granted(grant(nonce, 1), None);
    assert!(waiters.unwanted(usize::MAX).is_empty());
}

#[test]
fn nothing_is_left_of_a_waiter_that_has_gone() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiting.queued(queued(SystemClock.now(), 7, 0));
    drop(waiting);
    waiters.forget(nonce);
    assert!(waiters.lock().is_empty());
}

#[test]
fn a_grant_to_a_waiter_that_gave_up_is_released_but_not_one_to_a_guard() {
    let (waiters, keys, nonce) = waiters();
    let held = GrantId::random().unwrap();
    drop(waiters.enter(nonce, &keys));
    let waiting = waiters.enter(held, &keys);
    waiting.ends_granted();
    drop(waiting);
    for nonce in [nonce, held, nonce] {
        waiters.granted(grant(nonce, 1), None);
    }
    assert_eq!(waiters.unwanted(usize::MAX), [(nonce, keys)]);
}

#[test]
fn what_is_found_out_while_a_heartbeat_is_on_its_way_is_not_forgotten_with_its_answer() {
    let (waiters, keys, nonce) = waiters();
    let waiting = waiters.enter(nonce, &keys);
    waiting.queued(queued(SystemClock.now(), 7, 0));
    waiters.ask_all();
    let (due, _) = waiters.due(usize::MAX);
    waiters.ask_after(&keys.lock, Duration::ZERO);
    let answer = HeartbeatReply {
        sent_at: SystemClock.now(),
        known: true,
        pause: Pause::Foreign,
        last_token: Some(0),
        queued: vec![true],
        holder: None,
        grants: Vec::new(),
    };
    waiters.answered(&due[0], &answer);
    assert_eq!(waiters.due(usize::MAX).0.len(), 1);
}
