//! RE: the levels of a reentrant lock.

use std::collections::HashMap;

use super::check::Check;
use super::claim::Claim;
use super::finding::{Finding, time};
use super::ledger::{Ledger, LockClaims};
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::{Kind, Text};

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in ledger.locks.iter().filter(|lock| lock.kind == Kind::Reentrant) {
        levels(ledger, lock, findings);
    }
}

/// The levels that one owner is inside, in one process.
#[derive(Default)]
struct Inside<'c, 'h> {
    levels: Vec<&'c Claim<'h>>,
}

fn levels<'c, 'h>(ledger: &'c Ledger<'h>, lock: &LockClaims<'h>, findings: &mut Findings) {
    // Grants and the requests of releases, in the order of time.
    let mut steps: Vec<(Mark, bool, &'c Claim<'h>)> = Vec::new();
    for claim in ledger.claims_of(lock) {
        steps.extend(claim.granted().map(|(mark, _)| (mark, true, claim)));
        steps.extend(claim.releases.first().map(|release| (release.asked, false, claim)));
    }
    steps.sort_by_key(|(mark, ..)| *mark);
    let mut inside: HashMap<(&Text, &Text), Inside<'c, 'h>> = HashMap::new();
    for (mark, enters, claim) in steps {
        let owner = inside.entry((&claim.ask.owner, claim.proc)).or_default();
        if enters {
            if let Some(outer) = owner.levels.last() {
                nests(ledger, lock, outer, claim, mark, findings);
            }
            owner.levels.push(claim);
        } else {
            owner.levels.retain(|level| level.id != claim.id);
        }
    }
}

/// A level within another one has the same token, and never shortens the lease.
fn nests(
    ledger: &Ledger<'_>,
    lock: &LockClaims<'_>,
    outer: &Claim<'_>,
    inner: &Claim<'_>,
    mark: Mark,
    findings: &mut Findings,
) {
    let (Some((outer_mark, had)), Some((_, has))) = (outer.granted(), inner.granted()) else { return };
    let is_nested = has.depth.is_some_and(|depth| depth > 1);
    if !is_nested || had.sample.held == Some(false) || has.sample.held == Some(false) {
        return;
    }
    if had.token != has.token {
        let what = format!("{} is a level within {}, but its token is another one", inner.id, outer.id);
        findings.add(Finding::new(Check::RE, what).of(lock.res).shown_by([outer_mark, mark]));
    }
    if let (Some(before), Some(after)) = (had.sample.deadline, has.sample.deadline)
        // A deadline is stamped a little before it is asked for, so it may look a little earlier than it is.
        && after.saturating_add(ledger.rules.notice) < before
        && !ledger.windows.touch(inner.proc, outer_mark.t, mark.t)
    {
        let what = format!("{} made the lease of {} shorter by {}", inner.id, outer.id, time(before - after));
        findings.add(Finding::new(Check::RE, what).of(lock.res).shown_by([outer_mark, mark]));
    }
}
