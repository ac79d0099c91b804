//! The effects and the residue of a release: R1 to R3, LEAK.

use super::super::sketch::{Sketch, mutex, of_kind, token};
use super::{NONE, named, tells_apart};
use crate::Check;
use crate::history::event::{Granted, Kind};

#[test]
fn r1_rejects_a_second_release() {
    tells_apart(Check::R1, false, true, |is_done_again| {
        let mut sketch = Sketch::new();
        let holder = sketch.hold(10, 20, mutex("a"), token(1));
        if is_done_again {
            sketch.release(30, &holder)
        } else {
            sketch.release_nothing(30, &holder)
        }
        sketch.end(50)
    });
}

#[test]
fn r2_rejects_a_release_that_hits_another_holder() {
    tells_apart(Check::R2, false, true, |is_hit| {
        let mut sketch = Sketch::new();
        let late = sketch.take(10, mutex("a"), token(1));
        sketch.check(20, &late, false);
        sketch.lose(21, &late, "expired");
        sketch.fault(12, 20, "a", Some("state T"));
        let holder = sketch.take(30, mutex("b"), token(2));
        sketch.release_nothing(40, &late);
        if is_hit {
            sketch.lose(60, &holder, "taken")
        } else {
            sketch.release(60, &holder)
        }
        sketch.end(90)
    });
}

#[test]
fn r3_rejects_a_release_that_did_not_happen() {
    tells_apart(Check::R3, &[][..], &["g1"], |holders| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.truth(15, &["g1"]);
        sketch.release(20, &holder);
        sketch.truth(30, holders);
        sketch.end(50)
    });
}

#[test]
fn a_release_that_was_not_sent_says_nothing_of_the_grant() {
    let mut sketch = Sketch::new();
    let holder = sketch.take(10, mutex("a"), named("g1", token(1)));
    sketch.release_unsent(20, &holder);
    sketch.truth(30, &["g1"]);
    sketch.release(40, &holder);
    assert_eq!(sketch.end(60).rejections(), NONE);
}

#[test]
fn r3_knows_that_an_inner_level_leaves_the_grant_of_its_owner() {
    tells_apart(Check::R3, 55, 45, |seen| {
        let mut sketch = Sketch::new();
        let level = || of_kind(Kind::Reentrant, "a");
        let at = |depth| named("g1", Granted { depth: Some(depth), ..token(1) });
        let outer = sketch.take(10, level(), at(1));
        let inner = sketch.take(20, level(), at(2));
        sketch.release(30, &inner);
        sketch.truth_of(Kind::Reentrant, 35, &["g1"]);
        sketch.release(40, &outer);
        sketch.truth_of(Kind::Reentrant, 45, if seen == 45 { &["g1"] } else { &[] });
        sketch.end(60)
    });
}

#[test]
fn leak_rejects_what_is_left() {
    tells_apart(Check::LEAK, &[][..], &["queue:x"], |left| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, mutex("a"), token(1));
        sketch.residue(30, left);
        sketch.end(50)
    });
}
