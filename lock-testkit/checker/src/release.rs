//! R1 and R3: what releases say. R2, whom they hit, is told with the losses.

use std::collections::HashMap;

use super::check::Check;
use super::claim::Claim;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::Text;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for lock in &ledger.locks {
        let (seen, levels) = (last_seen(lock), Levels::of(ledger, lock));
        for claim in ledger.claims_of(lock) {
            once(lock, claim, findings);
            honest(lock, claim, &seen, &levels, findings);
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

/// The two claims of each grant that were released last, and by when: the levels of one owner of a reentrant lock have one grant.
struct Levels<'h>(HashMap<&'h Text, Vec<(u64, &'h Text)>>);

impl<'h> Levels<'h> {
    fn of(ledger: &Ledger<'h>, lock: &LockClaims<'h>) -> Self {
        let mut levels = HashMap::<_, Vec<_>>::new();
        for claim in ledger.claims_of(lock) {
            let Some(grant) = claim.granted().and_then(|(_, granted)| granted.grant.as_ref()) else { continue };
            let answered = claim.releases.iter().filter_map(|release| release.outcome.mark());
            let last = levels.entry(grant).or_default();
            last.push((answered.map(|mark| mark.t).min().unwrap_or(u64::MAX), claim.id));
            last.sort_unstable_by(|one, other| other.cmp(one));
            last.truncate(2);
        }
        Self(levels)
    }

    /// Whether another level of this grant may have been there at this instant.
    fn are_more_than(&self, claim: &Claim<'_>, grant: &Text, t: u64) -> bool {
        let levels = self.0.get(grant).map(Vec::as_slice).unwrap_or_default();
        levels.iter().any(|(released, id)| *id != claim.id && *released > t)
    }
}

/// R3: after a release that succeeded the server does not have the grant, and neither after one that found nothing. That of an inner
/// level leaves it there.
fn honest(lock: &LockClaims<'_>, claim: &Claim<'_>, seen: &LastSeen<'_>, levels: &Levels<'_>, findings: &mut Findings) {
    let Some(grant) = claim.granted().and_then(|(_, granted)| granted.grant.as_ref()) else { return };
    let Some((after, look)) = seen.get(grant) else { return };
    for release in &claim.releases {
        let not_held = release.outcome.not_held();
        let (mark, said) = match (release.outcome.ok(), not_held) {
            (Some((mark, _)), _) => (mark, "was released"),
            (None, Some(mark)) => (mark, "was not held any more when it was released"),
            (None, None) => continue,
        };
        // What a local deadline has ended may linger at the server until its own.
        let is_local = not_held.is_some() && super::belief::first_denial(claim).is_some();
        if mark.t < *after && !is_local && !levels.are_more_than(claim, grant, mark.t) {
            let what = format!("{} {said}, but the server still has it", claim.id);
            findings.add(Finding::new(Check::R3, what).of(lock.res).shown_by([release.asked, mark, *look]));
        }
    }
}
