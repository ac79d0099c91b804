//! Tokens and the resource that looks at them: F1 to F5.

use super::super::sketch::{Sketch, mutex, of_kind, token};
use super::{NONE, tells_apart};
use crate::Check;
use crate::history::event::Kind;

#[test]
fn f1_rejects_tokens_that_do_not_grow() {
    let history = |second| {
        let mut sketch = Sketch::new();
        for (t, number) in [(10, 5), (30, second)] {
            let id = sketch.take(t, mutex("a"), token(number));
            sketch.release(t + 10, &id);
        }
        sketch.end(50).rejections()
    };
    assert_eq!(history(6), NONE);
    assert_eq!(history(5), [Check::F1]);
    assert_eq!(history(1), [Check::F1]);
}

#[test]
fn f1_rejects_a_reader_from_before_the_last_writer() {
    tells_apart(Check::F1, 5, 4, |reader| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, of_kind(Kind::Write, "a"), token(5));
        sketch.hold(30, 40, of_kind(Kind::Read, "b"), token(reader));
        sketch.end(50)
    });
}

/// One holder with token 5 after one with token 4, and what the resource saw.
fn resource(accesses: &[(u64, Option<u64>, bool)]) -> Vec<Check> {
    let mut sketch = Sketch::new();
    let late = sketch.hold(10, 20, mutex("a"), token(4));
    let holder = sketch.take(30, mutex("b"), token(5));
    for ((token, write, accepted), t) in accesses.iter().zip(40..) {
        let id = if *token == 4 { &late } else { &holder };
        sketch.access(t, id, *token, *write, *accepted);
    }
    sketch.release(80, &holder);
    sketch.end(100).rejections()
}

#[test]
fn f2_rejects_a_resource_that_admits_an_old_token() {
    assert_eq!(resource(&[(4, None, true), (5, None, true), (4, None, false)]), NONE);
    assert_eq!(resource(&[(4, None, true), (5, None, true), (4, None, true)]), [Check::F2]);
}

#[test]
fn f3_rejects_a_resource_that_refuses_the_newest_token() {
    assert_eq!(resource(&[(5, None, true), (4, None, false)]), NONE);
    assert_eq!(resource(&[(4, None, true), (5, None, false)]), [Check::F3]);
}

#[test]
fn f4_rejects_a_lost_update() {
    assert_eq!(resource(&[(4, Some(1), true), (5, Some(2), true)]), NONE);
    assert_eq!(resource(&[(4, Some(1), true), (5, Some(1), true)]), [Check::F4]);
}

#[test]
fn f5_rejects_a_token_that_is_not_the_grants() {
    tells_apart(Check::F5, 5, 6, |shown| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(5));
        sketch.access(20, &holder, shown, None, true);
        sketch.release(30, &holder);
        sketch.end(50)
    });
}
