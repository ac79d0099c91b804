//! O1, O2: jobs that run once per slot. A slot is done when its resource has admitted the work on it.

use std::collections::{HashMap, HashSet};

use super::check::Check;
use super::finding::Finding;
use super::ledger::{Ledger, SlotCall};
use super::mark::{CallEnd, Mark};
use super::violation::Findings;
use crate::history::event::Text;
use crate::history::recipe::Work;

/// One job.
#[derive(Debug, Default)]
struct Job<'c, 'h> {
    calls: Vec<&'c SlotCall<'h>>,
    works: Vec<(Mark, &'h Work)>,
    /// The slots that were worked on, each begun no sooner than it was asked for.
    begun: Vec<(u64, Mark)>,
}

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    let mut jobs: HashMap<&Text, Job<'_, '_>> = HashMap::new();
    for call in &ledger.slots {
        jobs.entry(&call.asks.job).or_default().calls.push(call);
    }
    for (at, work) in &ledger.works {
        let asked = ledger.slot_of(work).map_or(*at, |call| call.asked);
        jobs.entry(&work.job).or_default().works.push((*at, work));
        jobs.entry(&work.job).or_default().begun.push((work.slot, asked));
    }
    for (name, job) in &jobs {
        if job.calls.iter().any(|call| call.asks.again) {
            done_again(name, job, findings);
        } else {
            begun_twice(name, job, findings);
        }
        never_begun(name, job, findings);
    }
}

/// O1, of a job that runs at most once: nothing works on one slot twice, whether it is admitted or not.
fn begun_twice(name: &Text, job: &Job<'_, '_>, findings: &mut Findings) {
    let mut begun = HashMap::new();
    for (at, work) in &job.works {
        if let Some(first) = begun.insert(work.slot, *at) {
            findings.add(
                Finding::new(Check::O1, format!("slot {} was begun twice", work.slot)).of(name).shown_by([first, *at]),
            );
        }
    }
}

/// O1, of a job that runs at least once: when somebody was told that a slot is done, neither it nor an earlier one is worked on again.
fn done_again(name: &Text, job: &Job<'_, '_>, findings: &mut Findings) {
    let told = job.calls.iter().filter_map(|call| {
        let (at, answer) = call.outcome.ok()?;
        // Of a later slot nobody has said more than that it was begun.
        (answer.ran || answer.latest == call.asks.slot).then_some((at, call.asks.slot))
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    let mut told = told.into_iter().peekable();
    let mut done = None::<(u64, Mark)>;
    for (at, work) in &job.works {
        while let Some((mark, slot)) = told.next_if(|(mark, _)| mark < at) {
            done = Some(done.filter(|(latest, _)| *latest > slot).unwrap_or((slot, mark)));
        }
        if let Some((slot, mark)) = done.filter(|(slot, _)| work.accepted && work.slot <= *slot) {
            let what = format!("slot {} was worked on after slot {slot} was done", work.slot);
            findings.add(Finding::new(Check::O1, what).of(name).shown_by([mark, *at]));
        }
    }
}

/// O2: a slot that was asked for before a later one was begun is begun, too. At most once, it may have been recorded as begun by a call
/// of which nobody knows how far it came.
fn never_begun(name: &Text, job: &Job<'_, '_>, findings: &mut Findings) {
    let begun: HashSet<_> = job.begun.iter().map(|(slot, _)| *slot).collect();
    // The first instant at which a slot, or a later one, can have been begun.
    let mut earliest = job.begun.clone();
    earliest.sort_unstable();
    for place in (1..earliest.len()).rev() {
        earliest[place - 1].1 = earliest[place - 1].1.min(earliest[place].1);
    }
    let mut asked: HashMap<u64, (Mark, bool)> = HashMap::new();
    for call in &job.calls {
        let may_be_recorded = !call.asks.again && matches!(call.outcome, CallEnd::Info(_) | CallEnd::Pending);
        let (first, excused) = asked.entry(call.asks.slot).or_insert((call.asked, false));
        *first = (*first).min(call.asked);
        *excused |= may_be_recorded;
    }
    for (slot, (at, excused)) in asked {
        if excused || begun.contains(&slot) {
            continue;
        }
        let next = earliest.partition_point(|(other, _)| *other <= slot);
        let later = earliest.get(next).filter(|(_, later)| *later > at);
        if let Some((_, later)) = later {
            let what = format!("slot {slot} was asked for before a later one was begun, and never begun");
            findings.add(Finding::new(Check::O2, what).of(name).shown_by([at, *later]));
        }
    }
}

/// Returns how many slots were asked for, how many of them were worked on, and how often in all.
pub(super) fn figures(ledger: &Ledger<'_>) -> (usize, usize, usize) {
    let count = |mut slots: Vec<(&Text, u64)>| {
        slots.sort_unstable();
        slots.dedup();
        slots.len()
    };
    let asked = ledger.slots.iter().map(|call| (&call.asks.job, call.asks.slot)).collect();
    let works = ledger.works.iter().filter(|(_, work)| work.accepted).map(|(_, work)| (&work.job, work.slot));
    let works: Vec<_> = works.collect();
    let times = works.len();
    (count(asked), count(works), times)
}
