//! P5: nobody is overtaken by somebody who surely came later.

use super::check::Check;
use super::claim::Claim;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::Kind;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    if !ledger.rules.fifo {
        return;
    }
    for lock in &ledger.locks {
        for (claim, granted, count, other) in overtaken(ledger, lock) {
            let what = format!("{} was overtaken by {count} who came later", claim.id);
            let marks = [claim.asked, granted].into_iter().chain(other);
            findings.add(Finding::new(Check::P5, what).of(lock.res).shown_by(marks));
        }
    }
}

/// Returns how often a waiter was overtaken, at most.
pub(super) fn most_overtaken(ledger: &Ledger<'_>) -> usize {
    let counts = ledger.locks.iter().flat_map(|lock| overtaken(ledger, lock)).map(|(_, _, count, _)| count);
    counts.max().unwrap_or_default()
}

/// Waiters that were granted the lock after others who surely came later, with one of those.
///
/// Only where one grant has to end before the next one begins does the order of answers tell the order of grants: so
/// readers are not compared with readers, and semaphores are judged if they have one permit.
fn overtaken<'c, 'h>(ledger: &'c Ledger<'h>, lock: &LockClaims<'h>) -> Vec<(&'c Claim<'h>, Mark, usize, Option<Mark>)> {
    let single = |claim: &&Claim<'_>| claim.ask.kind != Kind::Sem || claim.ask.limit == 1;
    let outermost = ledger.claims_of(lock).filter(single).filter(|claim| !claim.is_nested());
    let mut granted: Vec<_> = outermost.filter_map(|claim| Some((claim.granted()?.0, claim))).collect();
    granted.sort_by_key(|(mark, _)| *mark);
    let mut requests: Vec<_> = granted.iter().map(|(_, claim)| claim.asked.t).collect();
    requests.sort_unstable();
    let (mut all, mut exclusive) = (Counts::new(requests.len()), Counts::new(requests.len()));
    let mut found = Vec::new();
    for (mark, claim) in &granted {
        let surely_later = requests.partition_point(|t| *t <= claim.asked.t.saturating_add(ledger.rules.enqueue));
        let before = if claim.ask.kind == Kind::Read { &exclusive } else { &all };
        let count = before.from(surely_later);
        // Of several locks at once the last one is asked for when the others are held.
        let waited = !claim.is_try() && !claim.is_grouped();
        let undisturbed = !ledger.windows.touch_anybody(claim.asked.t, mark.t);
        if count > 0 && waited && undisturbed {
            let later = |(other, whose): &&(Mark, &Claim<'_>)| {
                other < mark && whose.asked.t > claim.asked.t.saturating_add(ledger.rules.enqueue)
            };
            found.push((*claim, *mark, count, granted.iter().find(later).map(|(other, _)| *other)));
        }
        let place = requests.partition_point(|t| *t < claim.asked.t);
        all.add(place);
        if claim.ask.kind.is_exclusive() || claim.ask.kind == Kind::Sem {
            exclusive.add(place);
        }
    }
    found
}

/// Counts the places taken in a row, from the first one on: a binary indexed tree (Fenwick 1994).
struct Counts {
    tree: Vec<usize>,
    total: usize,
}

impl Counts {
    fn new(places: usize) -> Self {
        Self { tree: vec![0; places + 1], total: 0 }
    }

    fn add(&mut self, place: usize) {
        self.total += 1;
        let mut node = place + 1;
        while node < self.tree.len() {
            self.tree[node] += 1;
            node += node & node.wrapping_neg();
        }
    }

    fn from(&self, place: usize) -> usize {
        let (mut before, mut node) = (0, place);
        while node > 0 {
            before += self.tree[node];
            node -= node & node.wrapping_neg();
        }
        self.total - before
    }
}
