//! Whether requests are answered: P1 to P4, and P6.

use super::super::sketch::{Sketch, mutex, of_kind, token};
use super::{MS, NONE, permits, tells_apart};
use crate::Check;
use crate::history::Rules;
use crate::history::event::{Ask, Granted, Kind};

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
fn p1_judges_what_is_left_of_a_gap_when_a_fault_is_over() {
    // The waiter has lost its subscription: the release is confirmed, and nobody tells it.
    tells_apart(Check::P1, 3_500, 60_000, |granted| {
        let mut sketch = Sketch::new();
        let first = sketch.take(5, mutex("a"), token(1));
        let second = sketch.ask(8, Ask { wait: Some(80_000 * MS), ..mutex("b") });
        sketch.fault(10, 20, "server", Some("connections were reset"));
        sketch.release(15, &first);
        sketch.grant(granted, &second, token(2));
        sketch.release(granted + 10, &second);
        sketch.end(90_000)
    });
}

#[test]
fn p1_goes_by_the_next_holder_if_nobody_has_heard_of_a_release() {
    // A holder that was dropped, perhaps as a reader, a second one, and a lock that lies about while a third one waits.
    let history = |first: Kind, becomes: Option<Kind>, second: Kind| {
        let waits = if first == Kind::Mutex { Kind::Mutex } else { Kind::Write };
        let mut sketch = Sketch::new();
        let dropped = sketch.take(10, of_kind(first, "a"), token(1));
        let waiter = sketch.ask(15, of_kind(waits, "c"));
        if let Some(kind) = becomes {
            sketch.change(16, 17, &dropped, kind, 1);
        }
        sketch.release_unheard(20, &dropped);
        sketch.hold(30, 40, of_kind(second, "b"), token(2));
        sketch.grant(1_050, &waiter, token(3));
        sketch.release(1_060, &waiter);
        sketch.end(9_000).rejections()
    };
    assert_eq!(history(Kind::Mutex, None, Kind::Mutex), [Check::P1]);
    assert_eq!(history(Kind::Read, None, Kind::Write), [Check::P1]);
    assert_eq!(history(Kind::Write, None, Kind::Read), [Check::P1]);
    assert_eq!(history(Kind::Read, None, Kind::Read), NONE, "readers are there together");
    assert_eq!(history(Kind::Write, Some(Kind::Read), Kind::Read), NONE, "it is a reader, too");
}

#[test]
fn p1_rejects_permits_that_lie_about() {
    tells_apart(Check::P1, 2, 1, |wanted| {
        let mut sketch = Sketch::new();
        let first = sketch.take(10, permits("a", 2), Granted::default());
        let second = sketch.ask(15, permits("b", wanted));
        sketch.release(1_500, &first);
        sketch.grant(1_510, &second, Granted::default());
        sketch.release(1_600, &second);
        sketch.end(3_000)
    });
}

#[test]
fn p2_rejects_a_waiter_that_is_forgotten() {
    tells_apart(Check::P2, 10, 40, |turns| {
        let mut sketch = Sketch::new();
        sketch.ask(5, Ask { wait: None, ..mutex("w") });
        for turn in 0..turns {
            let id = sketch.take(10 + 100 * turn, mutex("a"), token(turn + 1));
            sketch.release(100 + 100 * turn, &id);
        }
        sketch.end(10 + 100 * turns)
    });
}

#[test]
fn p2_counts_those_who_wait_at_the_same_time() {
    tells_apart(Check::P2, 0, 40, |more| {
        let mut sketch = Sketch::new();
        let short = |turn: u64, sketch: &mut Sketch| {
            let id = sketch.take(10 + 100 * turn, Ask { wait: None, ..mutex("a") }, token(turn + 1));
            sketch.release(100 + 100 * turn, &id);
        };
        // They are over long ago, and owe nobody a turn.
        (0..100).for_each(|turn| short(turn, &mut sketch));
        sketch.ask(10_005, Ask { wait: None, ..mutex("w") });
        for turn in 100..100 + more {
            let id = sketch.take(10 + 100 * turn, mutex("a"), token(turn + 1));
            sketch.release(100 + 100 * turn, &id);
        }
        sketch.end(10_010 + 100 * more)
    });
}

#[test]
fn p2_counts_those_with_a_limit_who_came_before() {
    tells_apart(Check::P2, 20, 200, |asked| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(5, mutex("h"), token(1));
        let limited = Ask { wait: Some(60_000 * MS), ..mutex("a") };
        let crowd: Vec<_> = (0..50).map(|_| sketch.ask(asked, limited.clone())).collect();
        let patient = sketch.ask(100, Ask { wait: None, ..mutex("w") });
        sketch.release(240, &holder);
        for (id, turn) in crowd.iter().zip(0..) {
            sketch.grant(250 + 100 * turn, id, token(turn + 2));
            sketch.release(340 + 100 * turn, id);
        }
        sketch.grant(5_250, &patient, token(60));
        sketch.release(5_300, &patient);
        sketch.end(6_000)
    });
}

#[test]
fn p2_is_judged_although_the_machine_stalls_now_and_then() {
    tells_apart(Check::P2, 10, 400, |turns| {
        let mut sketch = Sketch::new();
        sketch.ask(5, Ask { wait: None, ..mutex("w") });
        for turn in 0..turns {
            let id = sketch.take(10 + 100 * turn, mutex("a"), token(turn + 1));
            sketch.release(100 + 100 * turn, &id);
        }
        let end = 10 + 100 * turns;
        sketch.fault(end - 10, end - 5, "machine", Some("no tick for 5 ms"));
        sketch.end(end)
    });
}

#[test]
fn p3_rejects_a_call_that_comes_back_late() {
    tells_apart(Check::P3, 2_170, 2_171, |answered| {
        let mut sketch = Sketch::new();
        let holder = sketch.take(10, mutex("a"), token(1));
        let waiter = sketch.ask(20, Ask { wait: Some(100 * MS), ..mutex("b") });
        sketch.refuse(answered, &waiter);
        sketch.release(4_000, &holder);
        sketch.end(5_000)
    });
}

#[test]
fn p3_rejects_a_call_that_never_comes_back() {
    let history = |end, befalls: fn(&mut Sketch)| {
        let mut sketch = Sketch::new();
        sketch.ask(10, Ask { wait: Some(0), ..mutex("b") });
        befalls(&mut sketch);
        sketch.end(end).rejections()
    };
    assert_eq!(history(2_060, |_| {}), NONE, "it may still come back in time");
    assert_eq!(history(2_061, |_| {}), [Check::P3]);
    assert_eq!(history(3_600_000, |_| {}), [Check::P3]);
    assert_eq!(history(3_600_000, |sketch| sketch.kill(20, "b")), NONE, "the dead do not come back");
    assert_eq!(history(9_000, |sketch| sketch.fault(5, 8_000, "b", Some("state T"))), NONE, "it stood still");
}

#[test]
fn p3_is_judged_while_a_server_stands_still() {
    tells_apart(Check::P3, "b", "server", |frozen| {
        let mut sketch = Sketch::new();
        sketch.fault(10, 3_000, frozen, Some("state T"));
        let waiter = sketch.ask(20, Ask { wait: Some(100 * MS), ..mutex("b") });
        sketch.refuse(2_171, &waiter);
        sketch.hold(4_000, 4_100, mutex("a"), token(1));
        sketch.end(5_000)
    });
}

#[test]
fn p3_is_judged_while_a_process_has_no_link() {
    let history = |on_links| {
        let mut sketch = Sketch::new();
        if on_links {
            sketch.fault_on_links(10, 3_000, "b");
        } else {
            sketch.fault(10, 3_000, "b", Some("state T"));
        }
        let waiter = sketch.ask(20, Ask { wait: Some(100 * MS), ..mutex("b") });
        sketch.refuse(2_171, &waiter);
        sketch.hold(4_000, 4_100, mutex("a"), token(1));
        sketch.end(5_000).rejections()
    };
    assert_eq!(history(false), NONE, "it stands still");
    assert_eq!(history(true), [Check::P3]);
}

#[test]
fn a_writer_that_reads_as_well_holds_until_it_releases_both() {
    let mut sketch = Sketch::new();
    let owner = |kind, wait| Ask { wait, ..of_kind(kind, "o") };
    let writes = sketch.take(10, owner(Kind::Write, Some(0)), token(1));
    sketch.hold(20, 30, owner(Kind::Read, Some(0)), Granted::default());
    let waiter = sketch.ask(40, of_kind(Kind::Write, "p"));
    sketch.release(5_000, &writes);
    sketch.grant(5_010, &waiter, token(2));
    sketch.release(5_020, &waiter);
    assert_eq!(sketch.end(6_000).rejections(), NONE);
}

#[test]
fn p4_rejects_a_refusal_without_a_reason() {
    tells_apart(Check::P4, 21, 22, |tried| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, mutex("a"), token(1));
        let tries = sketch.ask(tried, Ask { wait: Some(0), ..mutex("b") });
        sketch.refuse(tried + 1, &tries);
        sketch.end(50)
    });
}

#[test]
fn p4_rejects_a_wait_that_is_refused_without_a_reason() {
    // A shorter one may be over before its request is answered.
    tells_apart(Check::P4, 50, 51, |wait| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, mutex("a"), token(1));
        let waits = sketch.ask(30, Ask { wait: Some(wait * MS), ..mutex("b") });
        sketch.refuse(30 + wait, &waits);
        sketch.end(500)
    });
}

#[test]
fn p4_excuses_a_wait_during_which_somebody_may_have_held() {
    let history = |kind, other, until| {
        let mut sketch = Sketch::new();
        sketch.hold(10, until, of_kind(other, "a"), token(1));
        let waits = sketch.ask(30, Ask { wait: Some(300 * MS), ..of_kind(kind, "b") });
        sketch.refuse(330, &waits);
        sketch.end(500).rejections()
    };
    assert_eq!(history(Kind::Mutex, Kind::Mutex, 40), NONE);
    assert_eq!(history(Kind::Mutex, Kind::Mutex, 20), [Check::P4]);
    assert_eq!(history(Kind::Read, Kind::Write, 40), NONE);
    assert_eq!(history(Kind::Read, Kind::Read, 40), [Check::P4]);
    assert_eq!(history(Kind::Write, Kind::Read, 40), NONE);
}

/// A session whose process is cut off is in the queue until it ends, whatever that process was told meanwhile.
#[test]
fn p4_excuses_a_wait_behind_one_that_ended_in_a_fault_of_its_own_process() {
    let history = |cut_off| {
        let mut sketch = Sketch::new();
        let first = sketch.take(5, mutex("c"), token(1));
        let behind = sketch.ask(10, Ask { wait: Some(300 * MS), ..mutex("a") });
        sketch.refuse(310, &behind);
        sketch.release(320, &first);
        if let Some(cut_off) = cut_off {
            sketch.fault_on_links(cut_off, 7_000, "a");
        }
        let waits = sketch.ask(6_000, Ask { wait: Some(300 * MS), ..mutex("b") });
        sketch.refuse(6_300, &waits);
        sketch.end(9_000).rejections()
    };
    for cut_off in [20, 311] {
        assert!(!history(Some(cut_off)).contains(&Check::P4), "at {cut_off}");
    }
    assert!(history(None).contains(&Check::P4));
}

#[test]
fn p4_excuses_tries_that_meet_only_where_they_may() {
    let history = |tries_meet, second| {
        let mut sketch = Sketch::by(Rules { tries_meet, ..Rules::default() });
        sketch.hold(10, 20, mutex("a"), token(1));
        let first = sketch.ask(30, Ask { wait: Some(0), ..mutex("b") });
        sketch.refuse(32, &first);
        let other = sketch.ask(second, Ask { wait: Some(0), ..mutex("c") });
        sketch.refuse(second + 1, &other);
        sketch.end(50).rejections()
    };
    assert_eq!(history(false, 31), [Check::P4]);
    assert_eq!(history(true, 31), NONE);
    assert_eq!(history(true, 33), [Check::P4], "nobody was there any more");
}

#[test]
fn p6_rejects_a_release_that_wakes_everybody() {
    tells_apart(Check::P6, 1, 2, |count| {
        let mut sketch = Sketch::new();
        sketch.hold(10, 20, mutex("a"), token(1));
        sketch.woken(30, count);
        sketch.end(50)
    });
}

#[test]
fn the_dead_hold_for_a_lease_at_most() {
    tells_apart(Check::P1, 1_030, 9_000, |granted| {
        let mut sketch = Sketch::new();
        sketch.take(10, mutex("a"), token(1));
        let waiter = sketch.ask(20, mutex("b"));
        sketch.kill(30, "a");
        sketch.grant(granted, &waiter, token(2));
        sketch.release(granted + 10, &waiter);
        sketch.end(20_000)
    });
}
