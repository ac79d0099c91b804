//! Locks that are taken away behind their holders' backs: what that excuses, and what not. All leases here are of 1,012
//! ms: 1 s, and what clocks may differ by.

use super::super::sketch::{Sketch, mutex, of_kind, token};
use super::{NONE, named, tells_apart};
use crate::history::event::Kind;
use crate::{Check, Verdict};

/// a holds g1 until somebody takes these grants, between 100 and 105, and b comes in; a asks itself at these times.
fn theft(stolen: &str, next_at: u64, looks: &[u64], told: u64) -> Sketch {
    let mut sketch = Sketch::new();
    let robbed = sketch.take(10, mutex("a"), named("g1", token(1)));
    sketch.steal(100, 105, &[stolen]);
    let next = sketch.take(next_at, mutex("b"), named("g2", token(2)));
    for look in looks {
        sketch.check(*look, &robbed, true);
    }
    sketch.lose(told, &robbed, "session_expired");
    sketch.release(2_000, &next);
    sketch.end(3_000)
}

#[test]
fn who_was_robbed_may_believe_until_it_hears_of_it() {
    assert_eq!(theft("g1", 110, &[90, 120, 140], 150).rejections(), NONE);
    assert_eq!(theft("g1", 110, &[1_117], 1_117).rejections(), NONE, "one lease later");
    assert_eq!(theft("g1", 110, &[1_118], 1_118).rejections(), [Check::ME, Check::L3], "beyond its lease");
}

#[test]
fn a_theft_is_no_excuse_for_anybody_else_nor_for_what_was_before() {
    tells_apart(Check::ME, 99, 98, |next_at| theft("g1", next_at, &[120], 150));
    assert_eq!(theft("g3", 110, &[120], 150).rejections(), [Check::ME, Check::E1], "another one's grant");
}

#[test]
fn the_next_holder_excludes_others_as_ever() {
    tells_apart(Check::ME, 129, 128, |third| {
        let mut sketch = Sketch::new();
        let robbed = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.steal(100, 105, &["g1"]);
        sketch.hold(110, 130, mutex("b"), named("g2", token(2)));
        sketch.hold(third, 160, mutex("c"), named("g3", token(3)));
        sketch.check(150, &robbed, true);
        sketch.lose(151, &robbed, "session_expired");
        sketch.end(3_000)
    });
}

#[test]
fn l3_rejects_a_robbed_holder_that_is_not_told() {
    tells_apart(Check::L3, 1_117, 1_118, |told| theft("g1", 110, &[], told));
    let history = |is_told| {
        let mut sketch = Sketch::new();
        let robbed = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.steal(100, 105, &["g1"]);
        if is_told {
            sketch.lose(150, &robbed, "session_expired");
        }
        sketch.end(3_000).rejections()
    };
    assert_eq!((history(true), history(false)), (vec![], vec![Check::L3]));
}

#[test]
fn l3_forgives_news_that_reach_a_process_that_stands_still() {
    tells_apart(Check::L3, "a", "b", |frozen| {
        let mut sketch = Sketch::new();
        sketch.hold(2, 5, mutex("b"), token(1));
        let robbed = sketch.take(10, mutex("a"), named("g1", token(2)));
        sketch.steal(100, 105, &["g1"]);
        sketch.fault(110, 1_200, frozen, Some("state T"));
        sketch.lose(1_201, &robbed, "session_expired");
        sketch.end(9_000)
    });
}

/// A waiter stands in the queue again in another session, with the grant of before.
#[test]
fn who_lost_its_place_only_may_hold_later_but_not_beside_others() {
    tells_apart(Check::ME, 1_300, 1_500, |released| {
        let mut sketch = Sketch::new();
        let other = sketch.take(5, mutex("b"), named("g2", token(1)));
        let waiter = sketch.ask(10, mutex("a"));
        sketch.steal(100, 105, &["g1"]);
        sketch.release(released, &other);
        sketch.grant(1_400, &waiter, named("g1", token(2)));
        sketch.release(1_600, &waiter);
        sketch.end(3_000)
    });
}

#[test]
fn rw_and_sem_excuse_the_robbed_as_well() {
    for (kind, check) in [(Kind::Write, Check::RW), (Kind::Sem, Check::SEM)] {
        tells_apart(check, "g1", "g3", |stolen| {
            let mut sketch = Sketch::new();
            let robbed = sketch.take(10, of_kind(kind, "a"), named("g1", token(1)));
            sketch.steal(100, 105, &[stolen]);
            sketch.hold(110, 130, of_kind(kind, "b"), named("g2", token(2)));
            sketch.release(120, &robbed);
            sketch.end(3_000)
        });
    }
}

#[test]
fn a_theft_excuses_no_old_token() {
    let history = |token_of_the_next, admitted| {
        let mut sketch = Sketch::new();
        let robbed = sketch.take(10, mutex("a"), named("g1", token(5)));
        sketch.steal(100, 105, &["g1"]);
        let next = sketch.take(110, mutex("b"), named("g2", token(token_of_the_next)));
        sketch.access(120, &next, token_of_the_next, Some(1), true);
        sketch.access(130, &robbed, 5, Some(2), admitted);
        sketch.check(140, &robbed, true);
        sketch.lose(150, &robbed, "session_expired");
        sketch.release(200, &next);
        sketch.end(3_000).rejections()
    };
    assert_eq!(history(6, false), NONE);
    assert_eq!(history(6, true), [Check::F2]);
    assert_eq!(history(4, true), [Check::F1]);
}

#[test]
fn a_theft_is_a_cause_and_stands_in_the_witness() {
    let judgement = theft("g1", 110, &[1_200], 1_201).judge();
    assert_eq!(judgement.verdict, Verdict::Illegal);
    for violation in &judgement.violations {
        assert!(violation.witness.contains(&3), "without the theft: {violation:?}");
    }
    let history = |stolen| {
        let mut sketch = Sketch::new();
        let robbed = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.steal(100, 105, &[stolen]);
        sketch.lose(150, &robbed, "session_expired");
        sketch.end(3_000).rejections()
    };
    assert_eq!((history("g1"), history("g2")), (vec![], vec![Check::E1]));
}
