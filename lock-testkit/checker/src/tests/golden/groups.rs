//! Several locks at once: MULTI, and what their waits and refusals say of each lock alone.

use super::super::sketch::{Sketch, mutex, rules, token};
use super::{MS, NONE, named, tells_apart};
use crate::Check;
use crate::history::event::{Ask, Text};

/// One of the locks that are asked for at once.
fn part(res: &str, wait: Option<u64>) -> Ask {
    Ask { group: Some("both".into()), res: res.into(), wait, ..mutex("g") }
}

/// `x` and `y`, for up to 10 s.
fn both(sketch: &mut Sketch, t: u64) -> [Text; 2] {
    ["x", "y"].map(|res| sketch.ask(t, part(res, Some(10_000 * MS))))
}

/// `x` and `y`, without waiting.
fn refused(sketch: &mut Sketch, t: u64) {
    for id in ["x", "y"].map(|res| sketch.ask(t, part(res, Some(0)))) {
        sketch.refuse(t + 1, &id);
    }
}

fn other(res: &str, owner: &str) -> Ask {
    Ask { res: res.into(), ..mutex(owner) }
}

#[test]
fn multi_rejects_half_of_the_locks() {
    tells_apart(Check::MULTI, true, false, |all: bool| {
        let mut sketch = Sketch::new();
        let [first, second] = both(&mut sketch, 10);
        sketch.grant(11, &first, token(1));
        if all {
            sketch.grant(12, &second, token(1))
        } else {
            sketch.refuse(12, &second)
        }
        sketch.release(20, &first);
        sketch.end(50)
    });
}

#[test]
fn me_counts_each_of_several_locks() {
    tells_apart(Check::ME, "z", "y", |res| {
        let mut sketch = Sketch::new();
        for id in both(&mut sketch, 10) {
            sketch.grant(12, &id, token(1));
            sketch.release(40, &id);
        }
        sketch.hold(20, 30, other(res, "b"), token(2));
        sketch.end(50)
    });
}

#[test]
fn multi_rejects_a_lock_that_is_kept_although_the_others_were_refused() {
    // One operation timeout and one lease after the refusal the server has forgotten it.
    tells_apart(Check::MULTI, 3_024, 3_025, |seen| {
        let mut sketch = Sketch::new();
        sketch.hold(1, 50, other("y", "b"), token(1));
        refused(&mut sketch, 10);
        sketch.truth(12, &["kept"]);
        sketch.truth(seen, &["kept"]);
        sketch.end(4_000)
    });
}

#[test]
fn multi_knows_whom_the_server_means() {
    let history = |name: &str, asked| {
        let mut sketch = Sketch::new();
        sketch.hold(1, 50, other("y", "b"), token(1));
        refused(&mut sketch, 10);
        let waiter = sketch.ask(asked, Ask { wait: None, ..mutex("w") });
        sketch.truth(12, &["kept"]);
        sketch.truth(3_500, &["kept"]);
        sketch.grant(3_501, &waiter, named(name, token(2)));
        sketch.release(3_600, &waiter);
        sketch.end(4_000).rejections()
    };
    assert_eq!(history("kept", 11), NONE, "of somebody who was told so late");
    assert_eq!(history("other", 11), [Check::MULTI]);
}

#[test]
fn multi_excuses_what_a_frozen_process_left() {
    tells_apart(Check::MULTI, "g", "b", |frozen| {
        let mut sketch = Sketch::new();
        sketch.fault(5, 500, frozen, Some("state T"));
        sketch.hold(1, 50, other("y", "b"), token(1));
        refused(&mut sketch, 10);
        sketch.truth(12, &["kept"]);
        sketch.truth(3_500, &["kept"]);
        sketch.end(4_000)
    });
}

#[test]
fn p1_does_not_know_which_of_several_is_waited_for() {
    tells_apart(Check::P1, true, false, |grouped: bool| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, other("y", "a"), token(1));
        // Nobody has x meanwhile, as far as one can see.
        let waits = if grouped { both(&mut sketch, 15).to_vec() } else { vec![sketch.ask(15, mutex("g"))] };
        sketch.release(1_500, &first);
        for id in waits {
            sketch.grant(1_510, &id, token(2));
            sketch.release(1_520, &id);
        }
        sketch.end(3_000)
    });
}

#[test]
fn p1_ends_with_what_several_may_have_taken() {
    let history = |until| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, other("y", "a"), token(1));
        let refused = both(&mut sketch, 20);
        let waiter = sketch.ask(30, mutex("b"));
        for id in refused {
            sketch.refuse(100, &id);
        }
        sketch.release(200, &first);
        sketch.grant(until, &waiter, token(2));
        sketch.release(until + 10, &waiter);
        sketch.end(9_000).rejections()
    };
    // What was taken of them may be there for one operation timeout and one lease.
    assert_eq!(history(4_112), NONE);
    assert_eq!(history(4_113), [Check::P1]);
}

#[test]
fn p2_gives_several_locks_the_time_of_each() {
    tells_apart(Check::P2, true, false, |grouped: bool| {
        let mut sketch = Sketch::new();
        let first = sketch.take(1, other("x", "a"), token(1));
        let second = sketch.take(1, other("y", "b"), token(1));
        let asks = if grouped { ["x", "y"].map(|res| part(res, None)).to_vec() } else { vec![part("y", None)] };
        let asks = asks.into_iter().map(|ask| sketch.ask(5, ask)).collect::<Vec<_>>();
        sketch.release(100, &first);
        sketch.release(100, &second);
        for id in asks {
            sketch.grant(4_000, &id, token(2));
            sketch.release(4_010, &id);
        }
        sketch.end(5_000)
    });
}

#[test]
fn p3_gives_several_locks_one_request_each() {
    tells_apart(Check::P3, 4_061, 4_062, |answered| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(1, other("y", "a"), token(1));
        for id in ["x", "y"].map(|res| sketch.ask(11, part(res, Some(0)))) {
            sketch.refuse(answered, &id);
        }
        sketch.release(4_500, &holder);
        sketch.end(5_000)
    });
}

#[test]
fn p4_wants_a_reason_at_one_of_several_locks() {
    let history = |held: &str| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(1, other(held, "a"), token(1));
        refused(&mut sketch, 10);
        sketch.release(20, &holder);
        sketch.end(50).rejections()
    };
    assert_eq!(history("x"), NONE);
    assert_eq!(history("y"), NONE);
    assert_eq!(history("z"), [Check::P4], "neither was held");
}

#[test]
fn p4_excuses_a_refusal_by_what_several_may_have_taken() {
    tells_apart(Check::P4, 3_021, 3_024, |tried| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(1, other("y", "a"), token(1));
        refused(&mut sketch, 10);
        let tries = sketch.ask(tried, Ask { wait: Some(0), ..mutex("b") });
        sketch.refuse(tried + 1, &tries);
        sketch.release(tried + 10, &holder);
        sketch.end(5_000)
    });
}

#[test]
fn p5_does_not_know_since_when_several_wait_for_each() {
    let history = |grouped: bool, later_grouped: bool| {
        let mut rules = rules();
        rules.fifo = true;
        let mut sketch = Sketch::by(rules);
        let holder = sketch.take(10, mutex("a"), token(1));
        let wish = |grouped, owner: &str| if grouped { part("x", Some(10_000 * MS)) } else { mutex(owner) };
        let first = sketch.ask(20, wish(grouped, "b"));
        let second = sketch.ask(200, wish(later_grouped, "c"));
        sketch.release(300, &holder);
        sketch.grant(310, &second, token(2));
        sketch.release(320, &second);
        sketch.grant(330, &first, token(3));
        sketch.release(340, &first);
        sketch.end(400).rejections()
    };
    assert_eq!(history(false, false), [Check::P5]);
    assert_eq!(history(true, false), NONE, "it may have waited for another one until then");
    assert_eq!(history(false, true), [Check::P5], "whatever it waited for, it came later");
}
