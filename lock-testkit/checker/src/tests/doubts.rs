//! A history that says nothing is Unknown, and never Ok.

use super::sketch::{Sketch, mutex, of_kind, rules, token};
use crate::history::event::{Ask, Granted, Kind};
use crate::history::{History, Rules};
use crate::{Judgement, Verdict, check};

fn assert_unknown(judgement: &Judgement, why: &str) {
    assert_eq!(judgement.verdict, Verdict::Unknown, "{judgement}");
    assert!(judgement.doubts.iter().any(|doubt| doubt.contains(why)), "{:?}", judgement.doubts);
}

/// Two holders, one after the other, the second of whom had to wait.
fn turns(rules: Rules) -> Sketch {
    let mut sketch = Sketch::by(rules);
    let first = sketch.take(10, mutex("a"), token(1));
    let second = sketch.ask(20, mutex("b"));
    sketch.release(50, &first);
    sketch.grant(52, &second, token(2));
    sketch.release(60, &second);
    sketch
}

#[test]
fn an_empty_history_is_unknown() {
    assert_unknown(&check(&History::default(), None), "0 grants");
    assert_unknown(&Sketch::new().end(1).judge(), "0 grants");
}

#[test]
fn a_history_without_contention_is_unknown() {
    let mut sketch = Sketch::by({
        let mut rules = rules();
        rules.least.contended = 1;
        rules
    });
    let alone = sketch.take(10, mutex("a"), token(1));
    sketch.release(20, &alone);
    assert_unknown(&sketch.end(100).judge(), "0 contended grants");
}

#[test]
fn a_history_without_several_locks_at_once_is_unknown_where_they_are_wanted() {
    let judgement = |parts: u64| {
        let mut rules = rules();
        rules.least.groups = 1;
        let mut sketch = turns(rules);
        let part = |res: &str| Ask { group: Some("both".into()), res: res.into(), ..mutex("g") };
        let asked = ["x", "y"].map(|res| sketch.ask(200, part(res)));
        for id in asked.iter().take(usize::try_from(parts).unwrap()) {
            sketch.grant(201, id, token(9));
        }
        sketch.end(300).judge()
    };
    assert_unknown(&judgement(1), "0 grants of several locks at once");
    assert_eq!((judgement(2).verdict, judgement(2).summary.groups), (Verdict::Ok, 1));
}

#[test]
fn a_history_without_faults_is_unknown() {
    let judgement = turns(Rules::default()).end(100).judge();
    assert_unknown(&judgement, "0 proven faults");
    assert_eq!((judgement.summary.grants, judgement.summary.contended), (2, 1));
}

#[test]
fn a_fault_that_nothing_proves_is_unknown() {
    let mut sketch = turns(rules());
    sketch.fault(70, 80, "server", None);
    assert_unknown(&sketch.end(100).judge(), "nothing proves");
    let mut proven = turns(Rules::default());
    proven.fault(70, 80, "server", Some("state T"));
    assert_eq!(proven.end(100).judge().verdict, Verdict::Ok);
}

#[test]
fn a_fault_of_whose_end_nobody_hears_is_unknown() {
    let mut sketch = turns(rules());
    sketch.fault_without_end(5, "server");
    assert_unknown(&sketch.end(3_600_000).judge(), "tells when");
}

#[test]
fn a_fault_at_a_process_ends_with_it() {
    let mut sketch = turns(rules());
    sketch.fault_without_end(70, "a");
    sketch.kill(80, "a");
    assert_eq!(sketch.end(100).judge().verdict, Verdict::Ok);
}

#[test]
fn grants_without_the_tokens_that_are_promised_are_unknown() {
    let judgement = |fencing, kind, granted| {
        let mut rules = rules();
        rules.fencing = fencing;
        let mut sketch = Sketch::by(rules);
        sketch.hold(10, 20, of_kind(kind, "a"), granted);
        sketch.end(100).judge()
    };
    for kind in [Kind::Mutex, Kind::Reentrant, Kind::Read, Kind::Write] {
        assert_unknown(&judgement(true, kind, Granted::default()), "1 grants without a token");
        assert_eq!(judgement(true, kind, token(1)).verdict, Verdict::Ok);
        assert_eq!(judgement(false, kind, Granted::default()).verdict, Verdict::Ok);
    }
    assert_eq!(judgement(true, Kind::Sem, Granted::default()).verdict, Verdict::Ok, "permits have none");
}

#[test]
fn what_the_machine_does_by_itself_is_no_fault_of_the_run() {
    let mut sketch = turns(Rules::default());
    sketch.fault(70, 80, "machine", Some("no tick for 10 ms"));
    assert_unknown(&sketch.end(100).judge(), "0 proven faults");
}

#[test]
fn a_history_that_was_cut_off_is_unknown() {
    assert_unknown(&turns(rules()).judge(), "no end");
}

#[test]
fn events_that_fit_nothing_are_unknown() {
    let mut sketch = turns(rules());
    sketch.release(70, &"nobody1".into());
    assert_unknown(&sketch.end(100).judge(), "fit nothing");
}

/// A grant's answer, its request later, and everything of it still in the way of those who waited.
#[test]
fn an_answer_from_before_its_request_fits_nothing_and_accuses_nobody() {
    let mut sketch = turns(rules());
    let odd = sketch.ask(5_000, mutex("c"));
    sketch.grant(1_000, &odd, token(3));
    let other = sketch.ask(1_500, mutex("d"));
    sketch.release(5_100, &odd);
    sketch.grant(5_101, &other, token(4));
    sketch.release(5_200, &other);
    assert_unknown(&sketch.end(5_300).judge(), "an answer from before its request");
}

#[test]
fn what_is_wrong_is_illegal_however_little_was_seen() {
    let mut sketch = Sketch::by(Rules::default());
    let first = sketch.take(10, mutex("a"), token(1));
    sketch.take(20, mutex("b"), token(2));
    sketch.check(30, &first, true);
    let judgement = sketch.judge();
    assert_eq!(judgement.verdict, Verdict::Illegal);
    assert!(!judgement.doubts.is_empty());
}
