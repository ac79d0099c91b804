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
        for Overtaken { claim, count, by } in overtaken(ledger, lock) {
            let what = format!("{} was overtaken by {count} who came later", claim.id);
            let marks = [claim.asked, by].into_iter().chain(claim.answer.mark());
            findings.add(Finding::new(Check::P5, what).of(lock.res).shown_by(marks));
        }
    }
}

/// Returns how often a waiter was overtaken, at most.
pub(super) fn most_overtaken(ledger: &Ledger<'_>) -> usize {
    let counts = ledger.locks.iter().flat_map(|lock| overtaken(ledger, lock)).map(|overtaken| overtaken.count);
    counts.max().unwrap_or_default()
}

/// A waiter that was granted the lock after others who surely came later, or not at all.
struct Overtaken<'c, 'h> {
    claim: &'c Claim<'h>,
    count: usize,
    /// One of the grants before it.
    by: Mark,
}

/// Returns the waiters that were overtaken.
///
/// Only where one grant has to end before the next one begins does the order of answers tell the order of grants: so
/// readers are not compared with readers, and semaphores are judged if they have one permit.
fn overtaken<'c, 'h>(ledger: &'c Ledger<'h>, lock: &LockClaims<'h>) -> Vec<Overtaken<'c, 'h>> {
    let single = |claim: &&Claim<'_>| claim.ask.kind != Kind::Sem || claim.ask.limit == 1;
    let outermost = ledger.claims_of(lock).filter(single).filter(|claim| !claim.is_nested());
    let mut waits: Vec<_> = outermost.map(|claim| (waited_until(ledger, claim), claim)).collect();
    waits.sort_by_key(|(until, _)| *until);
    let granted: Vec<_> = waits.iter().filter(|(_, claim)| claim.granted().is_some()).copied().collect();
    let mut requests: Vec<_> = granted.iter().map(|(_, claim)| claim.asked.t).collect();
    requests.sort_unstable();
    let (mut all, mut exclusive) = (Counts::new(requests.len()), Counts::new(requests.len()));
    let mut found = Vec::new();
    for (until, claim) in waits {
        let surely = claim.asked.t.saturating_add(ledger.rules.enqueue);
        let before = if claim.ask.kind == Kind::Read { &exclusive } else { &all };
        let count = before.from(requests.partition_point(|t| *t <= surely));
        // Of several locks at once the last one is asked for when the others are held. Nobody knows when one was asked for whose
        // answer comes first.
        let waited = !claim.is_try() && !claim.is_grouped() && !claim.is_early;
        let undisturbed = !ledger.windows.touch_anybody(claim.asked.t, until.t);
        if count > 0 && waited && undisturbed {
            // An owner that is let in by another of its requests was not overtaken.
            let is_itself = |whose: &Claim<'_>| claim.ask.kind == Kind::Reentrant && whose.ask.owner == claim.ask.owner;
            let later =
                |(other, whose): &&(Mark, &Claim<'_>)| *other < until && whose.asked.t > surely && !is_itself(whose);
            found.extend(granted.iter().find(later).map(|(by, _)| Overtaken { claim, count, by: *by }));
        }
        if claim.granted().is_none() {
            continue;
        }
        let place = requests.partition_point(|t| *t < claim.asked.t);
        all.add(place);
        if claim.ask.kind.is_exclusive() || claim.ask.kind == Kind::Sem {
            exclusive.add(place);
        }
    }
    found
}

/// Returns until when a claim surely waited: until its grant; without one until it was about to give up or to die, because
/// whoever does may have left the queue a moment before that is written down.
fn waited_until(ledger: &Ledger<'_>, claim: &Claim<'_>) -> Mark {
    if let Some((granted, _)) = claim.granted() {
        return granted;
    }
    let over = claim.ask.wait.map(|wait| claim.asked.t.saturating_add(wait));
    let answered = claim.answer.mark().map(|mark| mark.t);
    let died = ledger.deaths.get(claim.proc).map(|mark| mark.t);
    let left = [over, answered, died].into_iter().flatten().min();
    let until = left.map_or(ledger.end, |left| left.saturating_sub(ledger.rules.enqueue).min(ledger.end));
    Mark { t: until, event: claim.asked.event }
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
