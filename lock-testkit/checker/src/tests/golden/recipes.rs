//! Jobs that run once per slot, leaders and records: O1, O2, TERM and REC.

use super::super::sketch::{Sketch, rules};
use super::{NONE, tells_apart};
use crate::{Check, Verdict};

/// Wants no grants: a recipe's own are not written down.
fn sketch() -> Sketch {
    let mut rules = rules();
    rules.least.grants = 0;
    Sketch::by(rules)
}

/// A slot that a process asks for, works on and is told of.
fn ran(sketch: &mut Sketch, t: u64, proc: &str, slot: u64, again: bool) {
    let id = sketch.ask_slot(t, proc, slot, again);
    sketch.work(t + 1, &id, slot, true);
    sketch.answer_slot(t + 2, &id, true, slot);
}

#[test]
fn o1_rejects_a_slot_that_is_begun_twice_where_once_is_the_most() {
    tells_apart(Check::O1, 8, 7, |other| {
        let mut sketch = sketch();
        let crashed = sketch.ask_slot(10, "a", 7, false);
        sketch.work(11, &crashed, 7, true);
        sketch.lose_slot(12, &crashed);
        ran(&mut sketch, 20, "b", other, false);
        sketch.end(50)
    });
    let refused = {
        let mut sketch = sketch();
        ran(&mut sketch, 10, "a", 7, false);
        let late = sketch.ask_slot(20, "b", 7, false);
        sketch.work(21, &late, 7, false);
        sketch.end(50).rejections()
    };
    assert_eq!(refused, [Check::O1], "no resource has to refuse it");
}

#[test]
fn o1_rejects_a_slot_that_is_worked_on_after_it_was_done() {
    let history = |told: bool, slot, accepted| {
        let mut sketch = sketch();
        let first = sketch.ask_slot(10, "a", 7, true);
        sketch.work(11, &first, 7, true);
        if told {
            sketch.answer_slot(12, &first, true, 7);
        } else {
            sketch.lose_slot(12, &first);
        }
        let second = sketch.ask_slot(9, "b", slot, true);
        sketch.work(21, &second, slot, accepted);
        sketch.end(50).rejections()
    };
    assert_eq!(history(false, 7, true), NONE, "nobody knows how the first one ended");
    assert_eq!(history(true, 7, true), [Check::O1]);
    assert_eq!(history(true, 6, true), [Check::O1], "an earlier one");
    assert_eq!(history(true, 7, false), NONE, "it came too late, and was refused");
    assert_eq!(history(true, 8, true), NONE);
}

#[test]
fn o1_believes_whoever_was_told_that_a_slot_is_done_and_no_more() {
    let history = |latest| {
        let mut sketch = sketch();
        let skipped = sketch.ask_slot(10, "a", 7, true);
        sketch.answer_slot(11, &skipped, false, latest);
        let late = sketch.ask_slot(5, "b", 7, true);
        sketch.work(20, &late, 7, true);
        sketch.end(50).rejections()
    };
    assert_eq!(history(7), [Check::O1]);
    assert_eq!(history(8), NONE, "only that a later one was begun");
}

#[test]
fn o2_rejects_a_slot_that_is_passed_over() {
    tells_apart(Check::O2, 20, 9, |asked| {
        let mut sketch = sketch();
        let passed = sketch.ask_slot(asked, "a", 7, true);
        sketch.answer_slot(asked + 20, &passed, false, 8);
        ran(&mut sketch, 10, "b", 8, true);
        sketch.end(50)
    });
}

#[test]
fn o2_excuses_a_beginning_that_may_have_been_recorded_where_once_is_the_most() {
    let history = |again| {
        let mut sketch = sketch();
        let lost = sketch.ask_slot(5, "a", 7, again);
        sketch.lose_slot(8, &lost);
        ran(&mut sketch, 10, "b", 8, again);
        sketch.end(50).rejections()
    };
    assert_eq!(history(false), NONE);
    assert_eq!(history(true), [Check::O2], "it is run again by whoever asks");
}

#[test]
fn term_rejects_an_earlier_leader_who_is_asked_after_a_later_one_was_seen() {
    tells_apart(Check::TERM, 20, 21, |asked| {
        let mut sketch = sketch();
        sketch.lead(10, 11, "a", Some(1));
        sketch.lead(15, 20, "b", Some(2));
        // A question before the later leader was seen may have been answered before it led.
        sketch.lead(asked, 30, "a", Some(1));
        sketch.end(50)
    });
    tells_apart(Check::TERM, None, Some(1), |term| {
        let mut sketch = sketch();
        sketch.lead(15, 20, "b", Some(2));
        sketch.lead(40, 41, "a", term);
        sketch.end(50)
    });
}

#[test]
fn term_rejects_two_leaders_of_one_term() {
    tells_apart(Check::TERM, "a", "b", |other| {
        let mut sketch = sketch();
        sketch.lead(10, 11, "a", Some(1));
        sketch.lead(10, 12, other, Some(1));
        sketch.end(50)
    });
}

#[test]
fn rec_rejects_a_record_that_goes_back() {
    let history = |asked, term, written| {
        let mut sketch = sketch();
        sketch.record(10, 20, 5, Some(4));
        sketch.record(asked, 30, term, written);
        sketch.end(50).rejections()
    };
    assert_eq!(history(21, 5, Some(4)), NONE);
    assert_eq!(history(21, 6, Some(4)), NONE);
    assert_eq!(history(21, 5, Some(5)), NONE);
    assert_eq!(history(21, 4, Some(4)), [Check::REC], "to an earlier holder");
    assert_eq!(history(21, 5, Some(3)), [Check::REC], "to earlier data");
    assert_eq!(history(21, 5, None), [Check::REC], "to none");
    assert_eq!(history(20, 4, Some(3)), NONE, "it may have been asked for first");
    assert_eq!(history(21, 6, Some(7)), [Check::REC], "data of nobody who was here");
}

#[test]
fn rec_is_not_judged_where_a_fault_takes_records_away() {
    let history = |records| {
        let mut rules = rules();
        (rules.least.grants, rules.records) = (0, records);
        let mut sketch = Sketch::by(rules);
        sketch.record(10, 20, 5, Some(4));
        sketch.record(30, 40, 6, None);
        sketch.end(50).rejections()
    };
    assert_eq!(history(false), NONE);
    assert_eq!(history(true), [Check::REC]);
}

#[test]
fn too_few_slots_or_terms_are_unknown() {
    for (slots, terms) in [(2, 1), (1, 2)] {
        let mut rules = rules();
        (rules.least.grants, rules.least.slots, rules.least.terms) = (0, slots, terms);
        let mut sketch = Sketch::by(rules);
        ran(&mut sketch, 10, "a", 7, false);
        sketch.lead(10, 11, "a", Some(1));
        let judgement = sketch.end(50).judge();
        assert_eq!(judgement.verdict, Verdict::Unknown);
        assert_eq!((judgement.summary.slots, judgement.summary.terms), ((1, 1, 1), 1));
    }
}

#[test]
fn a_round_is_a_fault_after_which_another_one_leads() {
    let judged = |leader, term, t, rounds| {
        let mut rules = rules();
        (rules.least.grants, rules.least.rounds) = (0, rounds);
        let mut sketch = Sketch::by(rules);
        sketch.lead(5, 8, "a", Some(1));
        sketch.fault(10, 20, "a", Some("it stood still"));
        sketch.lead(t, t + 1, leader, Some(term));
        sketch.fault(40, 50, "b", Some("it stood still"));
        sketch.end(60).judge()
    };
    let rounds = |leader, term, t| judged(leader, term, t, 0).summary.rounds;
    assert_eq!(rounds("b", 2, 15), 1, "while it lasts");
    assert_eq!(rounds("b", 2, 30), 1, "afterwards");
    assert_eq!(rounds("b", 2, 8), 0, "before");
    assert_eq!(rounds("a", 2, 30), 0, "the same one again");
    assert_eq!(rounds("a", 1, 30), 0, "the same one still");
    assert_eq!(judged("b", 2, 30, 1).verdict, Verdict::Ok);
    assert_eq!(judged("b", 2, 30, 2).verdict, Verdict::Unknown);
}
