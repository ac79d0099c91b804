//! TERM: never two terms that both act.

use std::collections::{HashMap, HashSet};

use super::check::Check;
use super::finding::Finding;
use super::ledger::Ledger;
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::Text;
use crate::history::recipe::Lead;

/// A process that said that it leads.
#[derive(Debug, Clone, Copy)]
struct Reading<'h> {
    term: u64,
    after: u64,
    at: Mark,
    lead: &'h Lead,
}

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    let mut elections: HashMap<&Text, Vec<Reading<'_>>> = HashMap::new();
    for (at, lead) in &ledger.leads {
        if let Some(term) = lead.term {
            let reading = Reading { term, after: lead.after, at: *at, lead };
            elections.entry(&lead.election).or_default().push(reading);
        }
    }
    for (election, readings) in &elections {
        one_term_each(election, readings, findings);
        no_older_term(election, readings, findings);
    }
}

/// A term has one leader.
fn one_term_each(election: &Text, readings: &[Reading<'_>], findings: &mut Findings) {
    let mut leaders: HashMap<u64, &Reading<'_>> = HashMap::new();
    for reading in readings {
        let first = leaders.entry(reading.term).or_insert(reading);
        if first.lead.leader != reading.lead.leader {
            let what = format!("{} and {} led in one term", first.lead.leader, reading.lead.leader);
            findings.add(Finding::new(Check::TERM, what).of(election).shown_by([first.at, reading.at]));
        }
    }
}

/// A process that was asked after a later term had been seen does not lead in an earlier one. A reading lies somewhere between question and answer.
fn no_older_term(election: &Text, readings: &[Reading<'_>], findings: &mut Findings) {
    let (mut by_answer, mut by_question) = (readings.to_vec(), readings.to_vec());
    by_answer.sort_by_key(|reading| reading.at);
    by_question.sort_by_key(|reading| reading.after);
    let mut answered = by_answer.into_iter().peekable();
    let mut latest = None::<Reading<'_>>;
    for reading in by_question {
        while let Some(before) = answered.next_if(|before| before.at.t < reading.after) {
            latest = Some(latest.filter(|latest| latest.term >= before.term).unwrap_or(before));
        }
        if let Some(latest) = latest.filter(|latest| latest.term > reading.term) {
            let (one, other) = (&reading.lead, &latest.lead);
            let what = format!(
                "{} ({}) led in term {} when {} ({}) already led in term {}",
                one.leader, one.by, reading.term, other.leader, other.by, latest.term
            );
            findings.add(Finding::new(Check::TERM, what).of(election).shown_by([latest.at, reading.at]));
        }
    }
}

/// Returns the number of terms in which somebody was seen to lead, and how often somebody was, by each way of asking.
pub(super) fn figures(ledger: &Ledger<'_>) -> (usize, Vec<(Text, usize)>) {
    let mut terms = HashSet::new();
    let mut readings: Vec<(Text, usize)> = Vec::new();
    for (_, lead) in &ledger.leads {
        let Some(term) = lead.term else { continue };
        terms.insert((&lead.election, term));
        match readings.iter_mut().find(|(by, _)| *by == lead.by) {
            Some((_, count)) => *count += 1,
            None => readings.push((lead.by.clone(), 1)),
        }
    }
    readings.sort_unstable();
    (terms.len(), readings)
}

/// Returns after how many faults, and before the next one, somebody else was seen to lead than before, in a later term.
pub(super) fn rounds(ledger: &Ledger<'_>) -> usize {
    let mut elections: HashMap<&Text, Vec<(u64, u64, &Text)>> = HashMap::new();
    for (at, lead) in &ledger.leads {
        if let Some(term) = lead.term {
            elections.entry(&lead.election).or_default().push((at.t, term, &lead.leader));
        }
    }
    let windows = ledger.windows.all().iter().filter(|window| window.is_chosen() && window.proven);
    let mut begins: Vec<_> = windows.map(|window| window.from).collect();
    begins.sort_unstable();
    let mut rounds = 0;
    for readings in elections.values_mut() {
        readings.sort_unstable();
        let (mut from, mut latest) = (0, None);
        for (place, begin) in begins.iter().enumerate() {
            let until = begins.get(place + 1).copied().unwrap_or(u64::MAX);
            let place_of = |t| readings.partition_point(|reading| reading.0 < t);
            let (began, ended) = (place_of(*begin), place_of(until));
            latest = readings[from..began].iter().chain(latest).max_by_key(|reading| reading.1);
            from = began;
            let is_another = |(_, term, leader): &(u64, u64, &Text)| {
                latest.is_some_and(|(_, before, led)| term > before && leader != led)
            };
            rounds += usize::from(readings[began..ended].iter().any(is_another));
        }
    }
    rounds
}
