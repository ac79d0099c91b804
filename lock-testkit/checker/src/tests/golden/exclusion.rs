//! Holders that may be inside at once: ME, RW, SEM and RE.

use super::super::sketch::{Sketch, mutex, of_kind, token};
use super::{MS, NONE, named, permits, tells_apart};
use crate::Check;
use crate::history::event::{Granted, Kind, Sample};

fn held(token: u64, deadline: u64) -> Granted {
    Granted {
        token: Some(token),
        sample: Sample { held: Some(true), deadline: Some(deadline * MS) },
        ..Granted::default()
    }
}

fn level(depth: u32, granted: Granted) -> Granted {
    Granted { depth: Some(depth), ..granted }
}

#[test]
fn me_rejects_two_holders_at_once() {
    tells_apart(Check::ME, 30, 31, |released| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, mutex("a"), token(1));
        let second = sketch.ask(15, mutex("b"));
        sketch.release(released, &first);
        sketch.grant(30, &second, token(2));
        sketch.release(40, &second);
        sketch.end(50)
    });
}

#[test]
fn me_sees_a_hold_without_a_length_within_another_one() {
    let mut sketch = Sketch::new();
    let first = sketch.take(10, mutex("a"), token(1));
    sketch.take(20, mutex("b"), token(2));
    sketch.release(40, &first);
    let judgement = sketch.end(50).judge();
    assert!(judgement.is_rejected_by(Check::ME), "{judgement}");
    let witness = &judgement.violations.iter().find(|violation| violation.check == Check::ME).unwrap().witness;
    assert_eq!(witness.as_slice(), [2, 4, 5], "both grants and the end of the longer hold");
}

#[test]
fn me_rejects_two_holders_whom_the_server_itself_names() {
    let names: [&[&str]; 2] = [&["g1"], &["g1", "g2"]];
    tells_apart(Check::ME, names[0], names[1], |holders| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, mutex("a"), named("g1", token(1)));
        let second = sketch.ask(15, mutex("b"));
        sketch.truth(20, holders);
        sketch.release(30, &first);
        sketch.grant(40, &second, named("g2", token(2)));
        sketch.release(50, &second);
        sketch.end(60)
    });
}

#[test]
fn rw_rejects_a_writer_beside_a_reader() {
    tells_apart(Check::RW, 25, 35, |last_release| {
        let mut sketch = Sketch::new();
        let reader = sketch.take(10, of_kind(Kind::Read, "a"), token(1));
        let other = sketch.take(12, of_kind(Kind::Read, "b"), token(1));
        let writer = sketch.ask(15, of_kind(Kind::Write, "c"));
        sketch.release(20, &reader);
        sketch.release(last_release, &other);
        sketch.grant(30, &writer, token(2));
        sketch.release(40, &writer);
        sketch.end(50)
    });
}

#[test]
fn rw_knows_that_a_downgraded_writer_is_a_reader() {
    tells_apart(Check::RW, Kind::Read, Kind::Write, |kind| {
        let mut sketch = Sketch::new();
        let writer = sketch.take(10, of_kind(Kind::Write, "a"), token(1));
        sketch.change(20, 22, &writer, Kind::Read, 1);
        sketch.hold(24, 30, of_kind(kind, "b"), token(2));
        sketch.release(40, &writer);
        sketch.end(50)
    });
}

#[test]
fn sem_rejects_more_permits_than_there_are() {
    tells_apart(Check::SEM, 1, 2, |wanted| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 2), Granted::default());
        let second = sketch.take(20, permits("b", wanted), Granted::default());
        sketch.release(30, &first);
        sketch.release(40, &second);
        sketch.end(50)
    });
}

#[test]
fn sem_counts_permits_that_were_released() {
    tells_apart(Check::SEM, 1, 2, |kept| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 3), Granted::default());
        sketch.change(15, 16, &first, Kind::Sem, kept);
        let second = sketch.take(20, permits("b", 2), Granted::default());
        sketch.release(30, &first);
        sketch.release(40, &second);
        sketch.end(50)
    });
}

#[test]
fn re_rejects_levels_that_are_not_of_one_hold() {
    let history = |inner| {
        let mut sketch = Sketch::new();
        let outer = sketch.take(10, of_kind(Kind::Reentrant, "a"), level(1, held(1, 900)));
        sketch.hold(20, 30, of_kind(Kind::Reentrant, "a"), inner);
        sketch.release(40, &outer);
        sketch.end(50).rejections()
    };
    assert_eq!(history(level(2, held(1, 900))), NONE);
    assert_eq!(history(level(2, held(2, 900))), [Check::RE], "another token");
    assert_eq!(history(level(2, held(1, 800))), NONE, "as far as one can see");
    assert_eq!(history(level(2, held(1, 799))), [Check::RE], "a shorter lease");
}

#[test]
fn me_lets_nobody_in_while_any_level_is_inside() {
    tells_apart(Check::ME, 25, 35, |inner_released| {
        let mut sketch = Sketch::new();
        let outer = sketch.take(10, of_kind(Kind::Reentrant, "a"), level(1, held(1, 900)));
        let inner = sketch.take(12, of_kind(Kind::Reentrant, "a"), level(2, held(1, 900)));
        let other = sketch.ask(15, of_kind(Kind::Reentrant, "b"));
        sketch.release(20, &outer);
        sketch.release(inner_released, &inner);
        sketch.grant(30, &other, level(1, held(2, 900)));
        sketch.release(40, &other);
        sketch.end(50)
    });
}
