//! The effects and the residue of a release: R1 to R3, LEAK.

use super::super::sketch::{Sketch, mutex, token};
use super::{named, tells_apart};
use crate::Check;

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
fn leak_rejects_what_is_left() {
    tells_apart(Check::LEAK, &[][..], &["queue:x"], |left| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, mutex("a"), token(1));
        sketch.residue(30, left);
        sketch.end(50)
    });
}
