//! The items that an attempt is known to have, after answers and without them.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn key(text: &str) -> Key {
    text.into()
}

fn entry() -> Entry {
    Entry::new(GrantId::from_bytes([7; 16]), Owner::new(), key("lock"))
}

#[test]
fn a_claim_that_was_not_answered_is_remembered_until_it_cannot_be_carried_out() {
    let (entry, now) = (entry(), SystemClock.now());
    entry.claiming(&key("a"), now.plus(Duration::from_secs(60)));
    assert!(!entry.is_empty());
    entry.refused(&key("a"));
    assert!(entry.is_empty());
    entry.claiming(&key("a"), now);
    assert!(entry.is_empty(), "its time was over at once");
}

#[test]
fn an_answer_settles_one_claim_and_not_an_earlier_one() {
    let (entry, later) = (entry(), SystemClock.now().plus(Duration::from_secs(60)));
    entry.claiming(&key("a"), later);
    entry.claiming(&key("a"), later);
    entry.won(&key("a"), CasNumber::of_a_test(3));
    assert_eq!(entry.pieces(), [Piece { key: key("a"), seen: CasNumber::of_a_test(3) }]);
    assert_eq!(entry.unsure(), [key("a")]);
    entry.renewed(&key("a"), CasNumber::of_a_test(4));
    entry.renewed(&key("a"), CasNumber::of_a_test(2));
    assert_eq!(entry.pieces(), [Piece { key: key("a"), seen: CasNumber::of_a_test(4) }]);
    entry.lost(&key("a"));
    entry.renewed(&key("a"), CasNumber::of_a_test(5));
    assert_eq!(entry.pieces(), []);
}

#[test]
fn claims_of_one_key_take_no_more_room_however_many_are_not_answered() {
    let (entry, later) = (entry(), SystemClock.now().plus(Duration::from_secs(60)));
    for _ in 0..1000 {
        entry.claiming(&key("a"), later);
        entry.claiming(&key("b"), later);
    }
    assert_eq!((entry.unsure(), entry.state().unsure.len()), (vec![key("a"), key("b")], 2));
    (0..999).for_each(|_| entry.refused(&key("a")));
    assert_eq!(entry.unsure(), [key("a"), key("b")], "there was one more");
    entry.refused(&key("a"));
    assert_eq!(entry.unsure(), [key("b")]);
}

#[tokio::test]
async fn the_turn_is_waited_for_until_the_deadline_of_the_call() {
    let entry = entry();
    let until = || SystemClock.now().plus(Duration::from_millis(20));
    let turn = entry.turn_by(until()).await.unwrap();
    assert!(entry.turn_by(until()).await.unwrap_err().is_unknown, "what has the turn was not answered");
    drop(turn);
    entry.turn_by(until()).await.unwrap();
}

#[test]
fn a_refusal_says_nothing_of_an_earlier_release_that_was_not_answered() {
    let entry = entry();
    entry.won(&key("a"), CasNumber::of_a_test(3));
    entry.asks_release(&entry.pieces());
    entry.release_refused(&key("a"));
    assert!(!entry.is_release_asked(&key("a")));
    entry.asks_release(&entry.pieces());
    assert!(entry.is_release_asked(&key("a")) && !entry.may_be_released(&key("a")));
    for _ in 0..2 {
        entry.asks_release(&entry.pieces());
        entry.release_refused(&key("a"));
        assert!(entry.is_release_asked(&key("a")) && entry.may_be_released(&key("a")));
    }
    entry.won(&key("a"), CasNumber::of_a_test(4));
    assert!(!entry.is_release_asked(&key("a")), "it was taken anew");
}

#[test]
fn an_attempt_that_always_has_something_never_seems_to_have_nothing() {
    let (entry, later) = (entry(), SystemClock.now().plus(Duration::from_secs(60)));
    entry.claiming(&key("a"), later);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let looks = threads.spawn(|| {
            let mut is_empty = false;
            while !is_over.load(Ordering::Relaxed) {
                is_empty |= entry.is_empty();
            }
            is_empty
        });
        for number in 1..200_000 {
            entry.won(&key("a"), CasNumber::of_a_test(number));
            entry.doubt(&entry.pieces(), later);
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(!looks.join().unwrap(), "it would have been forgotten");
    });
}

#[test]
fn a_description_that_has_changed_since_it_was_sent_is_still_to_be_sent() {
    let entry = entry();
    let waiting = Description { token: None, since: 1, waits: true, seconds: 9 };
    let granted = Description { token: Some(7), since: 2, waits: false, seconds: 9 };
    entry.describe(waiting);
    entry.describe(granted);
    entry.described(waiting);
    assert_eq!(entry.to_describe(), Some(granted));
    entry.described(granted);
    assert_eq!(entry.to_describe(), None);
}
