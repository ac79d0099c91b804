//! R1 and R3: what releases say. R2, whom they hit, is told with the losses.

use std::collections::HashMap;

use super::check::Check;
use super::claim::Claim;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::{CallEnd, Mark};
use super::violation::Findings;
use crate::history::event::Text;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        let seen = last_seen(lock);
        for claim in ledger.claims_of(lock) {
            once(lock, claim, findings);
            honest(lock, claim, &seen, findings);
        }
    }
}

/// R1.
fn once(lock: &LockClaims<'_>, claim: &Claim<'_>, findings: &mut Findings) {
    let done: Vec<_> = claim.releases.iter().filter_map(|release| release.outcome.ok()).collect();
    if let [(first, _), (second, _), ..] = done.as_slice() {
        let what = format!("{} was released {} times", claim.id, done.len());
        findings.add(Finding::new(Check::R1, what).of(lock.res).shown_by([*first, *second]));
    }
}

/// The last sight of each grant at the server: after which instant, and by which event.
type LastSeen<'h> = HashMap<&'h Text, (u64, Mark)>;

fn last_seen<'h>(lock: &LockClaims<'h>) -> LastSeen<'h> {
    let mut seen = LastSeen::new();
    for (mark, truth) in &lock.truths {
        for holder in &truth.holders {
            let last = seen.entry(holder).or_insert((truth.after, *mark));
            *last = (*last).max((truth.after, *mark));
        }
    }
    seen
}

/// R3: after a release that succeeded the server does not have the grant, and neither after one that found nothing.
fn honest(lock: &LockClaims<'_>, claim: &Claim<'_>, seen: &LastSeen<'_>, findings: &mut Findings) {
    let Some((_, granted)) = claim.granted() else { return };
    let Some((after, look)) = granted.grant.as_ref().and_then(|grant| seen.get(grant)) else { return };
    for release in &claim.releases {
        let (mark, said) = match release.outcome {
            CallEnd::Ok(mark, _) => (mark, "was released"),
            CallEnd::Fail(mark, _) => (mark, "was not held any more when it was released"),
            CallEnd::Pending | CallEnd::Info(..) => continue,
        };
        // What a local deadline has ended may linger at the server until its own.
        let is_local = matches!(release.outcome, CallEnd::Fail(..)) && super::belief::first_denial(claim).is_some();
        if mark.t < *after && !is_local {
            let what = format!("{} {said}, but the server still has it", claim.id);
            findings.add(Finding::new(Check::R3, what).of(lock.res).shown_by([release.asked, mark, *look]));
        }
    }
}
