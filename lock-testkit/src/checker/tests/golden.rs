//! For each check a history that it passes, and one beside it that it rejects, for this one reason.

use super::sketch::{Sketch, mutex, of_kind, rules, token};
use crate::checker::{Check, Rules};
use crate::history::event::{Ask, Granted, Kind, Sample};

const MS: u64 = 1_000_000;
const NONE: [Check; 0] = [];

fn unrenewed() -> Rules {
    let mut rules = rules();
    rules.renewed = false;
    rules
}

fn fifo() -> Rules {
    let mut rules = rules();
    rules.fifo = true;
    rules
}

fn permits(owner: &str, permits: u32) -> Ask {
    Ask { permits, limit: 3, ..of_kind(Kind::Sem, owner) }
}

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

fn named(name: &str, granted: Granted) -> Granted {
    Granted { grant: Some(name.into()), ..granted }
}

#[test]
fn me_rejects_two_holders_at_once() {
    let history = |released| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, mutex("a"), token(1));
        let second = sketch.ask(15, mutex("b"));
        sketch.release(released, &first);
        sketch.grant(30, &second, token(2));
        sketch.release(40, &second);
        sketch.end(50).rejections()
    };
    assert_eq!(history(30), NONE);
    assert_eq!(history(31), [Check::ME]);
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
fn rw_rejects_a_writer_beside_a_reader() {
    let history = |last_release| {
        let mut sketch = Sketch::new();
        let reader = sketch.take(10, of_kind(Kind::Read, "a"), token(1));
        let other = sketch.take(12, of_kind(Kind::Read, "b"), token(1));
        let writer = sketch.ask(15, of_kind(Kind::Write, "c"));
        sketch.release(20, &reader);
        sketch.release(last_release, &other);
        sketch.grant(30, &writer, token(2));
        sketch.release(40, &writer);
        sketch.end(50).rejections()
    };
    assert_eq!(history(25), NONE);
    assert_eq!(history(35), [Check::RW]);
}

#[test]
fn rw_knows_that_a_downgraded_writer_is_a_reader() {
    let history = |kind| {
        let mut sketch = Sketch::new();
        let writer = sketch.take(10, of_kind(Kind::Write, "a"), token(1));
        sketch.change(20, 22, &writer, Kind::Read, 1);
        let other = sketch.take(24, of_kind(kind, "b"), token(2));
        sketch.release(30, &other);
        sketch.release(40, &writer);
        sketch.end(50).rejections()
    };
    assert_eq!(history(Kind::Read), NONE);
    assert_eq!(history(Kind::Write), [Check::RW]);
}

#[test]
fn sem_rejects_more_permits_than_there_are() {
    let history = |wanted| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 2), Granted::default());
        let second = sketch.take(20, permits("b", wanted), Granted::default());
        sketch.release(30, &first);
        sketch.release(40, &second);
        sketch.end(50).rejections()
    };
    assert_eq!(history(1), NONE);
    assert_eq!(history(2), [Check::SEM]);
}

#[test]
fn sem_counts_permits_that_were_given_back() {
    let history = |kept| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 3), Granted::default());
        sketch.change(15, 16, &first, Kind::Sem, kept);
        let second = sketch.take(20, permits("b", 2), Granted::default());
        sketch.release(30, &first);
        sketch.release(40, &second);
        sketch.end(50).rejections()
    };
    assert_eq!(history(1), NONE);
    assert_eq!(history(2), [Check::SEM]);
}

#[test]
fn re_rejects_levels_that_are_not_of_one_hold() {
    let history = |inner| {
        let mut sketch = Sketch::new();
        let outer = sketch.take(10, of_kind(Kind::Reentrant, "a"), level(1, held(1, 900)));
        let inner = sketch.take(20, of_kind(Kind::Reentrant, "a"), inner);
        sketch.release(30, &inner);
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
    let history = |inner_released| {
        let mut sketch = Sketch::new();
        let outer = sketch.take(10, of_kind(Kind::Reentrant, "a"), level(1, held(1, 900)));
        let inner = sketch.take(12, of_kind(Kind::Reentrant, "a"), level(2, held(1, 900)));
        let other = sketch.ask(15, of_kind(Kind::Reentrant, "b"));
        sketch.release(20, &outer);
        sketch.release(inner_released, &inner);
        sketch.grant(30, &other, level(1, held(2, 900)));
        sketch.release(40, &other);
        sketch.end(50).rejections()
    };
    assert_eq!(history(25), NONE);
    assert_eq!(history(35), [Check::ME]);
}

#[test]
fn multi_rejects_half_of_the_locks() {
    let history = |both: bool| {
        let mut sketch = Sketch::new();
        let grouped = |res: &str| Ask { group: Some("both".into()), res: res.into(), ..mutex("a") };
        let first = sketch.take(10, grouped("x"), token(1));
        let second = sketch.ask(10, grouped("y"));
        if both {
            sketch.grant(12, &second, token(1))
        } else {
            sketch.refuse(12, &second)
        }
        sketch.release(20, &first);
        sketch.end(50).rejections()
    };
    assert_eq!(history(true), NONE);
    assert_eq!(history(false), [Check::MULTI]);
}

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
    let history = |reader| {
        let mut sketch = Sketch::new();
        let writer = sketch.take(10, of_kind(Kind::Write, "a"), token(5));
        sketch.release(20, &writer);
        let reader = sketch.take(30, of_kind(Kind::Read, "b"), token(reader));
        sketch.release(40, &reader);
        sketch.end(50).rejections()
    };
    assert_eq!(history(5), NONE);
    assert_eq!(history(4), [Check::F1]);
}

/// One holder with token 5 after one with token 4, and what the resource saw.
fn resource(accesses: &[(u64, Option<u64>, bool)]) -> Vec<Check> {
    let mut sketch = Sketch::new();
    let late = sketch.take(10, mutex("a"), token(4));
    sketch.release(20, &late);
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
    let history = |shown| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(5));
        sketch.access(20, &holder, shown, None, true);
        sketch.release(30, &holder);
        sketch.end(50).rejections()
    };
    assert_eq!(history(5), NONE);
    assert_eq!(history(6), [Check::F5]);
}

#[test]
fn r1_rejects_a_second_release() {
    let history = |again: fn(&mut Sketch, u64, &crate::history::event::Text)| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.release(20, &holder);
        again(&mut sketch, 30, &holder);
        sketch.end(50).rejections()
    };
    assert_eq!(history(Sketch::release_nothing), NONE);
    assert_eq!(history(Sketch::release), [Check::R1]);
}

#[test]
fn r2_rejects_a_release_that_hits_another_holder() {
    let history = |is_hit: bool| {
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
        sketch.end(90).rejections()
    };
    assert_eq!(history(false), NONE);
    assert_eq!(history(true), [Check::R2]);
}

#[test]
fn r3_rejects_a_release_that_did_not_happen() {
    let history = |holders: &[&str]| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.truth(15, &["g1"]);
        sketch.release(20, &holder);
        sketch.truth(30, holders);
        sketch.end(50).rejections()
    };
    assert_eq!(history(&[]), NONE);
    assert_eq!(history(&["g1"]), [Check::R3]);
}

#[test]
fn l1_rejects_a_belief_beyond_the_lease() {
    let history = |last| {
        let mut sketch = Sketch::by(unrenewed());
        let granted = Granted { sent: Some(10 * MS), ..token(1) };
        let holder = sketch.take(10, mutex("a"), granted);
        sketch.check(last, &holder, true);
        sketch.end(2_000).rejections()
    };
    assert_eq!(history(990), NONE);
    assert_eq!(history(1_001), [Check::L1]);
}

#[test]
fn l1_counts_from_the_sending_of_the_renewal() {
    let history = |last| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.renew(500, 900, &holder);
        sketch.check(last, &holder, true);
        sketch.end(2_000).rejections()
    };
    assert_eq!(history(1_480), NONE);
    assert_eq!(history(1_500), [Check::L1]);
}

#[test]
fn l1_rejects_a_hold_that_comes_back() {
    let history = |again| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.fault(15, 20, "server", Some("state T"));
        sketch.check(30, &holder, false);
        sketch.lose(31, &holder, "expired");
        sketch.check(50, &holder, again);
        sketch.end(60).rejections()
    };
    assert_eq!(history(false), NONE);
    assert_eq!(history(true), [Check::L1]);
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
fn l2_rejects_late_news() {
    let history = |told| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.check(1_000, &holder, false);
        sketch.lose(told, &holder, "expired");
        sketch.end(3_000).rejections()
    };
    assert_eq!(history(1_100), NONE);
    assert_eq!(history(1_101), [Check::L2]);
}

#[test]
fn l2_rejects_news_that_never_come() {
    let history = |end| {
        let mut sketch = Sketch::by(unrenewed());
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.check(1_000, &holder, false);
        sketch.end(end).rejections()
    };
    assert_eq!(history(1_050), NONE);
    assert_eq!(history(3_000), [Check::L2]);
}

#[test]
fn l3_rejects_a_belief_in_an_entry_that_is_gone() {
    let history = |last| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), named("g1", token(1)));
        sketch.truth(20, &["g1"]);
        sketch.truth(100, &["g2"]);
        sketch.check(last, &holder, true);
        sketch.end(5_000).rejections()
    };
    assert_eq!(history(1_100), NONE);
    assert_eq!(history(1_200), [Check::L3]);
}

#[test]
fn e1_rejects_a_loss_without_a_cause() {
    let history = |target: Option<&str>| {
        let mut sketch = Sketch::new();
        let other = sketch.take(2, Ask { res: "y".into(), ..mutex("b") }, token(1));
        sketch.release(5, &other);
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

#[test]
fn p1_rejects_a_lock_that_is_free_while_somebody_waits() {
    let history = |granted, fault: bool| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, mutex("a"), token(1));
        let second = sketch.ask(15, mutex("b"));
        if fault {
            sketch.fault(100, 200, "server", Some("state T"));
        }
        sketch.release(20, &first);
        sketch.grant(granted, &second, token(2));
        sketch.release(granted + 10, &second);
        sketch.end(3_000).rejections()
    };
    assert_eq!(history(1_020, false), NONE);
    assert_eq!(history(1_030, false), [Check::P1]);
    assert_eq!(history(1_030, true), NONE);
}

#[test]
fn p1_rejects_permits_that_lie_about() {
    let history = |wanted| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 2), Granted::default());
        let second = sketch.ask(15, permits("b", wanted));
        sketch.release(1_500, &first);
        sketch.grant(1_510, &second, Granted::default());
        sketch.release(1_600, &second);
        sketch.end(3_000).rejections()
    };
    assert_eq!(history(2), NONE);
    assert_eq!(history(1), [Check::P1]);
}

#[test]
fn p2_rejects_a_waiter_that_is_forgotten() {
    let history = |turns| {
        let mut sketch = Sketch::new();
        sketch.ask(5, Ask { wait: None, ..mutex("w") });
        for turn in 0..turns {
            let id = sketch.take(10 + 100 * turn, mutex("a"), token(turn + 1));
            sketch.release(100 + 100 * turn, &id);
        }
        sketch.end(10 + 100 * turns).rejections()
    };
    assert_eq!(history(10), NONE);
    assert_eq!(history(40), [Check::P2]);
}

#[test]
fn p3_rejects_a_call_that_comes_back_late() {
    let history = |answered| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        let waiter = sketch.ask(20, Ask { wait: Some(100 * MS), ..mutex("b") });
        sketch.refuse(answered, &waiter);
        sketch.release(4_000, &holder);
        sketch.end(5_000).rejections()
    };
    assert_eq!(history(2_120), NONE);
    assert_eq!(history(2_121), [Check::P3]);
}

#[test]
fn p4_rejects_a_refusal_without_a_reason() {
    let history = |tried| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.release(20, &holder);
        let tries = sketch.ask(tried, Ask { wait: Some(0), ..mutex("b") });
        sketch.refuse(tried + 1, &tries);
        sketch.end(50).rejections()
    };
    assert_eq!(history(21), NONE);
    assert_eq!(history(22), [Check::P4]);
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
    assert_eq!(history(70), NONE, "nobody knows who was first in line");
    assert_eq!(history(71), [Check::P5]);
}

#[test]
fn p6_rejects_a_release_that_wakes_everybody() {
    let history = |count| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.release(20, &holder);
        sketch.woken(30, count);
        sketch.end(50).rejections()
    };
    assert_eq!(history(1), NONE);
    assert_eq!(history(2), [Check::P6]);
}

#[test]
fn leak_rejects_what_is_left() {
    let history = |left: &[&str]| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        sketch.release(20, &holder);
        sketch.residue(30, left);
        sketch.end(50).rejections()
    };
    assert_eq!(history(&[]), NONE);
    assert_eq!(history(&["queue:x"]), [Check::LEAK]);
}

#[test]
fn the_dead_hold_for_a_lease_at_most() {
    let history = |granted| {
        let mut sketch = Sketch::new();
        sketch.take(10, mutex("a"), token(1));
        let waiter = sketch.ask(20, mutex("b"));
        sketch.kill(30, "a");
        sketch.grant(granted, &waiter, token(2));
        sketch.release(granted + 10, &waiter);
        sketch.end(20_000).rejections()
    };
    assert_eq!(history(1_030), NONE);
    assert_eq!(history(9_000), [Check::P1]);
}
