//! The order in which requests are answered: P5.

use super::super::sketch::{Sketch, mutex, of_kind, rules, token};
use super::{MS, NONE};
use crate::Check;
use crate::history::Rules;
use crate::history::event::{Ask, Kind, Text};

fn fifo() -> Rules {
    let mut rules = rules();
    rules.fifo = true;
    rules
}

#[test]
fn p5_rejects_somebody_who_came_later() {
    let history = |later| {
        let mut sketch = Sketch::by(fifo());
        let holder = sketch.take(10, mutex("a"), token(1));
        let first = sketch.ask(20, mutex("b"));
        let second = sketch.ask(later, mutex("c"));
        sketch.release(200, &holder);
        sketch.grant(210, &second, token(2));
        sketch.release(220, &second);
        sketch.grant(230, &first, token(3));
        sketch.release(240, &first);
        sketch.end(300).rejections()
    };
    assert_eq!(history(70), NONE, "nobody knows who was first in the queue");
    assert_eq!(history(71), [Check::P5]);
}

#[test]
fn p5_rejects_somebody_who_came_later_than_one_who_is_never_served() {
    let history = |later, end: fn(&mut Sketch, &Text)| {
        let mut sketch = Sketch::by(fifo());
        let holder = sketch.take(10, mutex("h"), token(1));
        let starved = sketch.ask(20, mutex("a"));
        let mut next = sketch.ask(later, mutex("b"));
        sketch.release(200, &holder);
        for turn in 1..=10 {
            sketch.grant(1_000 * turn - 790, &next, token(turn + 1));
            let following = sketch.ask(1_000 * turn, mutex("c"));
            sketch.release(1_000 * turn + 200, &next);
            next = following;
        }
        end(&mut sketch, &starved);
        sketch.grant(10_210, &next, token(20));
        sketch.release(10_300, &next);
        sketch.end(10_400).rejections()
    };
    let refused: fn(&mut Sketch, &Text) = |sketch, starved| sketch.refuse(10_020, starved);
    for end in [refused, |sketch, starved| sketch.cancel(10_020, starved), |_, _| {}] {
        assert_eq!(history(71, end), [Check::P5]);
    }
}

#[test]
fn p5_judges_who_is_never_served_until_it_gives_up() {
    // One who came later is granted the lock at 210.
    let history = |later, refused, wait| {
        let mut sketch = Sketch::by(fifo());
        let holder = sketch.take(10, mutex("h"), token(1));
        let starved = sketch.ask(20, Ask { wait: Some(wait * MS), ..mutex("a") });
        let next = sketch.ask(later, mutex("b"));
        sketch.release(200, &holder);
        sketch.grant(210, &next, token(2));
        sketch.refuse(refused, &starved);
        sketch.release(400, &next);
        sketch.end(1_000).rejections()
    };
    assert_eq!(history(71, 270, 250), [Check::P5]);
    assert_eq!(history(70, 270, 250), NONE, "nobody knows who was first in the queue");
    assert_eq!(history(71, 260, 240), NONE, "it may have left the queue when its wait was about to end");
    assert_eq!(history(71, 350, 230), NONE, "its wait was over when the other one was granted the lock");
}

#[test]
fn p5_judges_who_waits_in_a_process_that_dies_until_it_does() {
    let history = |granted| {
        let mut sketch = Sketch::by(fifo());
        let holder = sketch.take(10, mutex("h"), token(1));
        sketch.ask(20, mutex("a"));
        let next = sketch.ask(100, mutex("b"));
        sketch.release(granted - 10, &holder);
        sketch.grant(granted, &next, token(2));
        sketch.kill(300, "a");
        sketch.release(400, &next);
        sketch.end(1_000).rejections()
    };
    assert_eq!(history(240), [Check::P5]);
    assert_eq!(history(251), NONE, "it may be dead already");
}

#[test]
fn p5_knows_that_an_owner_does_not_overtake_itself() {
    let history = |later| {
        let mut sketch = Sketch::by(fifo());
        let holder = sketch.take(10, of_kind(Kind::Reentrant, "h"), token(1));
        let first = sketch.ask(20, of_kind(Kind::Reentrant, "a"));
        let second = sketch.ask(100, of_kind(Kind::Reentrant, later));
        sketch.release(200, &holder);
        sketch.grant(210, &second, token(2));
        sketch.cancel(400, &first);
        sketch.release(500, &second);
        sketch.end(600).rejections()
    };
    assert_eq!(history("b"), [Check::P5]);
    assert_eq!(history("a"), NONE);
}
