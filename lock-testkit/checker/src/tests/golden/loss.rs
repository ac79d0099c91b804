//! The end of a holder's belief, and what it is told: L1 to L3, E1.

use super::super::sketch::{Sketch, mutex, of_kind, rules, token};
use super::{MS, NONE, named, permits, tells_apart};
use crate::Check;
use crate::history::Rules;
use crate::history::event::{Ask, Granted, Kind, Text};

fn unrenewed() -> Rules {
    let mut rules = rules();
    rules.renewed = false;
    rules
}

#[test]
fn l1_rejects_a_belief_beyond_the_lease() {
    tells_apart(Check::L1, 990, 1_001, |last| {
        let mut sketch = Sketch::by(unrenewed());
        let granted = Granted { sent: Some(10 * MS), ..token(1) };
        let holder = sketch.take(10, mutex("a"), granted);
        sketch.check(last, &holder, true);
        sketch.end(2_000)
    });
}

#[test]
fn l1_counts_from_the_sending_of_the_renewal() {
    tells_apart(Check::L1, 1_480, 1_500, |last| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.renew(500, 900, &holder);
        sketch.check(last, &holder, true);
        sketch.end(2_000)
    });
}

#[test]
fn l1_rejects_a_hold_that_comes_back() {
    tells_apart(Check::L1, false, true, |again| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.fault(15, 20, "server", Some("state T"));
        sketch.check(30, &holder, false);
        sketch.lose(31, &holder, "expired");
        sketch.check(50, &holder, again);
        sketch.end(60)
    });
}

#[test]
fn what_was_denied_is_no_certain_hold_any_more() {
    let mut sketch = Sketch::new();
    let late = sketch.take(10, mutex("a"), token(1));
    sketch.fault(15, 20, "server", Some("state T"));
    sketch.check(30, &late, false);
    sketch.lose(31, &late, "expired");
    let holder = sketch.take(40, mutex("b"), token(2));
    sketch.check(50, &late, true);
    sketch.release(60, &holder);
    assert_eq!(sketch.end(70).rejections(), [Check::L1], "it held again, but nobody knows since when");
}

#[test]
fn l1_is_judged_where_the_sending_is_seen_and_no_renewal_is() {
    tells_apart(Check::L1, 990, 1_001, |last| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), Granted { sent: Some(10 * MS), ..token(1) });
        sketch.check(last, &holder, true);
        sketch.end(2_000)
    });
}

#[test]
fn l1_rejects_a_holder_whose_own_deadline_has_passed() {
    tells_apart(Check::L1, 300, 299, |deadline| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.check_until(300, &holder, deadline);
        sketch.end(2_000)
    });
}

#[test]
fn l1_knows_that_a_renewal_sent_after_the_end_revives_nothing() {
    // The lease ends at 10 + 988.
    tells_apart(Check::L1, 990, 1_000, |sent| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), Granted { sent: Some(10 * MS), ..token(1) });
        sketch.renew(sent, 1_005, &holder);
        sketch.check(1_100, &holder, true);
        sketch.end(2_000)
    });
}

#[test]
fn l1_knows_that_nothing_is_revived_by_a_renewal_of_what_was_revived() {
    let mut sketch = Sketch::new();
    let holder = sketch.take(10, mutex("a"), Granted { sent: Some(10 * MS), ..token(1) });
    sketch.renew(1_100, 1_101, &holder);
    sketch.renew(1_200, 1_201, &holder);
    sketch.check(1_250, &holder, true);
    assert_eq!(sketch.end(2_000).rejections(), [Check::L1]);
}

#[test]
fn l3_rejects_a_renewal_that_writes_anew_what_was_gone() {
    tells_apart(Check::L3, "g1", "g2", |seen| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), named("g1", Granted { sent: Some(10 * MS), ..token(1) }));
        sketch.truth(100, &[seen]);
        sketch.renew(101, 102, &holder);
        sketch.release(200, &holder);
        sketch.end(2_000)
    });
}

#[test]
fn l3_excuses_a_renewal_that_was_sent_before_the_look_was_over() {
    let mut sketch = Sketch::new();
    let holder = sketch.take(10, mutex("a"), named("g1", Granted { sent: Some(10 * MS), ..token(1) }));
    sketch.truth(100, &[]);
    sketch.renew(99, 102, &holder);
    sketch.release(200, &holder);
    assert_eq!(sketch.end(2_000).rejections(), NONE, "the look may have been the later one");
}

#[test]
fn l3_excuses_a_hold_that_was_downgraded_between_two_looks() {
    let mut sketch = Sketch::new();
    let holder = sketch.take(
        10,
        Ask { kind: Kind::Write, ..mutex("a") },
        named("g1", Granted { sent: Some(10 * MS), ..token(1) }),
    );
    sketch.change(99, 101, &holder, Kind::Read, 1);
    sketch.truth_of(Kind::Write, 100, &[]);
    sketch.renew(102, 103, &holder);
    sketch.release(200, &holder);
    assert_eq!(sketch.end(2_000).rejections(), NONE);
}

#[test]
fn l2_rejects_late_news() {
    tells_apart(Check::L2, 1_100, 1_101, |told| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.check(1_000, &holder, false);
        sketch.lose(told, &holder, "expired");
        sketch.end(3_000)
    });
}

#[test]
fn l2_is_judged_while_a_server_stands_still() {
    tells_apart(Check::L2, "a", "server", |frozen| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.fault(20, 2_000, frozen, Some("state T"));
        sketch.check(1_000, &holder, false);
        sketch.lose(1_101, &holder, "expired");
        sketch.end(9_000)
    });
}

#[test]
fn l2_rejects_news_that_never_come() {
    tells_apart(Check::L2, 1_050, 3_000, |end| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.check(1_000, &holder, false);
        sketch.end(end)
    });
}

#[test]
fn l1_rejects_what_a_holder_says_when_it_releases() {
    tells_apart(Check::L1, 900, 899, |deadline| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.release_saying(900, &holder, true, deadline);
        sketch.end(2_000)
    });
    tells_apart(Check::L1, 990, 1_001, |released| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, mutex("a"), Granted { sent: Some(10 * MS), ..token(1) });
        sketch.release_saying(released, &holder, true, released);
        sketch.end(2_000)
    });
    tells_apart(Check::L1, false, true, |held| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.fault(400, 450, "server", Some("state T"));
        sketch.lose(500, &holder, "expired");
        sketch.release_saying(900, &holder, held, 901);
        sketch.end(2_000)
    });
}

#[test]
fn l1_rejects_a_hold_that_comes_back_after_a_change() {
    let history = |change: fn(&mut Sketch, &Text)| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, of_kind(Kind::Write, "a"), token(1));
        change(&mut sketch, &holder);
        sketch.fault(24, 26, "server", Some("state T"));
        sketch.check(30, &holder, false);
        sketch.lose(40, &holder, "expired");
        sketch.check(50, &holder, true);
        sketch.end(60).rejections()
    };
    assert_eq!(history(|sketch, holder| sketch.change(20, 22, holder, Kind::Read, 1)), [Check::L1]);
    let in_doubt: fn(&mut Sketch, &Text) = |sketch, holder| sketch.change_unheard(20, 22, holder, Kind::Read, 1);
    assert_eq!(history(in_doubt), [Check::L1], "it had been told");
}

#[test]
fn a_holder_whose_change_has_no_answer_may_hold_again() {
    let mut sketch = Sketch::new();
    let holder = sketch.take(10, of_kind(Kind::Write, "a"), token(1));
    sketch.change_unheard(20, 22, &holder, Kind::Read, 1);
    sketch.check(30, &holder, false);
    sketch.change(200, 210, &holder, Kind::Read, 1);
    sketch.check(220, &holder, true);
    sketch.release_saying(230, &holder, true, 300);
    assert_eq!(sketch.end(2_000).rejections(), NONE);
}

#[test]
fn l2_is_judged_after_a_change() {
    tells_apart(Check::L2, 1_100, 1_101, |told| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, permits("a", 2), Granted::default());
        sketch.change(20, 22, &holder, Kind::Sem, 1);
        sketch.check(1_000, &holder, false);
        sketch.lose(told, &holder, "expired");
        sketch.end(3_000)
    });
}

#[test]
fn l3_rejects_a_belief_in_an_entry_that_is_gone() {
    tells_apart(Check::L3, 1_100, 1_200, |last| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.truth(20, &["g1"]);
        sketch.truth(100, &["g2"]);
        sketch.check(last, &holder, true);
        sketch.end(5_000)
    });
}

#[test]
fn e1_rejects_a_loss_without_a_cause() {
    let history = |target: Option<&str>| {
        let mut sketch = Sketch::new();
        sketch.hold(2, 5, Ask { res: "y".into(), ..mutex("b") }, token(1));
        let holder = sketch.take(10, mutex("a"), token(1));
        if let Some(target) = target {
            sketch.fault(20, 30, target, Some("state T"));
        }
        sketch.lose(40, &holder, "expired");
        sketch.end(90).rejections()
    };
    assert_eq!(history(Some("server")), NONE);
    assert_eq!(history(Some("a")), NONE);
    assert_eq!(history(Some("b")), [Check::E1], "what happened to somebody else is no cause");
    assert_eq!(history(None), [Check::E1]);
}
