//! F1: tokens grow from grant to grant.

use std::collections::HashMap;

use super::check::Check;
use super::claim::Claim;
use super::finding::Finding;
use super::ledger::{Ledger, LockClaims};
use super::mark::Mark;
use super::violation::Findings;
use crate::history::event::Kind;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    if !ledger.rules.fencing {
        return;
    }
    for lock in ledger.locks.iter().filter(|lock| lock.kind != Kind::Sem) {
        order(ledger, lock, findings);
        distinct(ledger, lock, findings);
    }
}

/// Returns the number of grants without a token where each is to have one: permits have none.
pub(super) fn bare(ledger: &Ledger<'_>) -> usize {
    let fenced = ledger.claims.iter().filter(|claim| ledger.rules.fencing && claim.ask.kind != Kind::Sem);
    fenced.filter(|claim| claim.granted().is_some() && claim.token().is_none() && !claim.is_nested()).count()
}

/// A grant, with its token.
type Tokened<'c, 'h> = (Mark, u64, &'c Claim<'h>);

fn tokened<'c, 'h>(ledger: &'c Ledger<'h>, lock: &LockClaims<'h>) -> Vec<Tokened<'c, 'h>> {
    let outermost = ledger.claims_of(lock).filter(|claim| !claim.is_nested());
    let with_token = |claim: &'c Claim<'h>| Some((claim.granted()?.0, claim.token()?, claim));
    outermost.filter_map(with_token).collect()
}

/// Checks that a holder before another one asked has the smaller token. A reader may have the token of the last writer.
fn order(ledger: &Ledger<'_>, lock: &LockClaims<'_>, findings: &mut Findings) {
    let mut by_grant = tokened(ledger, lock);
    let mut by_request = by_grant.clone();
    by_grant.sort_by_key(|(granted, ..)| *granted);
    by_request.sort_by_key(|(.., claim)| claim.asked);
    let mut earlier = by_grant.into_iter().peekable();
    let (mut largest, mut largest_exclusive) = (None::<Tokened<'_, '_>>, None::<Tokened<'_, '_>>);
    for (granted, token, claim) in by_request {
        while let Some(next) = earlier.next_if(|(before, ..)| before.t < claim.asked.t) {
            largest = larger(largest, next);
            if next.2.ask.kind.is_exclusive() {
                largest_exclusive = larger(largest_exclusive, next);
            }
        }
        let exclusive = claim.ask.kind.is_exclusive();
        let before = if exclusive { largest } else { largest_exclusive };
        let Some((mark, other, whose)) = before else { continue };
        if other > token || (exclusive && other == token) {
            let what = format!("{} got token {token} after {} had got {other}", claim.id, whose.id);
            findings.add(Finding::new(Check::F1, what).of(lock.res).shown_by([mark, claim.asked, granted]));
        }
    }
}

fn larger<'c, 'h>(one: Option<Tokened<'c, 'h>>, other: Tokened<'c, 'h>) -> Option<Tokened<'c, 'h>> {
    Some(one.filter(|one| one.1 > other.1).unwrap_or(other))
}

/// No two exclusive grants have one token, also if they were asked for together.
fn distinct(ledger: &Ledger<'_>, lock: &LockClaims<'_>, findings: &mut Findings) {
    let mut seen = HashMap::new();
    for (mark, token, claim) in tokened(ledger, lock) {
        if !claim.ask.kind.is_exclusive() {
            continue;
        }
        if let Some((other, whose)) = seen.insert(token, (mark, claim.id)) {
            let what = format!("{} and {whose} got the same token {token}", claim.id);
            findings.add(Finding::new(Check::F1, what).of(lock.res).shown_by([other, mark]));
        }
    }
}
