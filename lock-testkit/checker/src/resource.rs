//! F2-F5: what the resources behind the locks saw, in the order in which they admitted.

use std::collections::HashMap;

use super::belief::belief;
use super::check::Check;
use super::finding::Finding;
use super::ledger::{Ledger, Use};
use super::violation::Findings;
use crate::history::event::Text;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    let mut targets: HashMap<&Text, Vec<&Use<'_>>> = HashMap::new();
    for usage in &ledger.uses {
        targets.entry(&usage.access.target).or_default().push(usage);
    }
    for (target, uses) in &targets {
        let fenced: Vec<_> = uses.iter().copied().filter(|usage| usage.access.fenced).collect();
        rejection(target, &fenced, findings);
        lost_updates(ledger, target, uses, findings);
    }
    false_rejection(ledger, findings);
    same_everywhere(ledger, findings);
}

/// F2: the tokens that a fenced resource admits never decrease. Readers do not disturb each other.
fn rejection(target: &Text, uses: &[&Use<'_>], findings: &mut Findings) {
    let (mut newest, mut newest_exclusive) = (None::<(u64, &Use<'_>)>, None::<(u64, &Use<'_>)>);
    for usage in uses.iter().filter(|usage| usage.access.accepted) {
        let Some(token) = usage.access.token else {
            let found = Finding::new(Check::F2, "admitted without a token").of(target);
            findings.add(found.shown_by([usage.at]));
            continue;
        };
        let seen = if usage.access.shared { newest_exclusive } else { newest };
        if let Some((other, whose)) = seen
            && other > token
        {
            let what = format!("{} was admitted with token {token} after {other}", usage.access.id);
            findings.add(Finding::new(Check::F2, what).of(target).shown_by([whose.at, usage.at]));
        }
        newest = Some(newest.filter(|(other, _)| *other > token).unwrap_or((token, usage)));
        if !usage.access.shared {
            newest_exclusive = Some(newest_exclusive.filter(|(other, _)| *other > token).unwrap_or((token, usage)));
        }
    }
}

/// F3: a holder whose token is the newest one is admitted. F5, the same at a second resource, follows from it for every
/// resource by itself.
fn false_rejection(ledger: &Ledger<'_>, findings: &mut Findings) {
    if !ledger.rules.fencing {
        return;
    }
    let mut grants: HashMap<(&Text, &str), Vec<(u64, u64)>> = HashMap::new();
    for claim in &ledger.claims {
        if let (Some((mark, _)), Some(token)) = (claim.granted(), claim.token()) {
            grants.entry((&claim.ask.res, claim.ask.kind.space())).or_default().push((mark.t, token));
        }
    }
    for issued in grants.values_mut() {
        issued.sort_unstable();
        let mut largest = 0;
        for (_, token) in issued {
            largest = largest.max(*token);
            *token = largest;
        }
    }
    for usage in ledger.uses.iter().filter(|usage| usage.access.fenced && !usage.access.accepted) {
        let Some(claim) = usage.claim.map(|claim| &ledger.claims[claim]) else { continue };
        let (Some((from, to)), Some(token)) = (belief(claim), usage.access.token) else { continue };
        let Some(issued) = grants.get(&(&claim.ask.res, claim.ask.kind.space())) else { continue };
        let before = issued.partition_point(|(t, _)| *t <= usage.at.t);
        let is_newest = before == 0 || issued[before - 1].1 <= token;
        if is_newest && from.t <= usage.at.t && usage.at.t <= to.t {
            let what = format!("{} was refused although it held and its token {token} was the newest", claim.id);
            findings.add(Finding::new(Check::F3, what).of(&usage.access.target).shown_by([from, usage.at, to]));
        }
    }
}

/// F4: everybody who writes adds one to what it has read. A write that does not bring a larger number than the last one
/// has overwritten an acknowledged one.
fn lost_updates(ledger: &Ledger<'_>, target: &Text, uses: &[&Use<'_>], findings: &mut Findings) {
    // Without fencing a holder that stands still may do that, and no lock can help it.
    let must_not = uses.iter().any(|usage| usage.access.fenced) || ledger.windows.all().is_empty();
    let mut last = None::<(u64, &Use<'_>)>;
    for usage in uses.iter().filter(|usage| must_not && usage.access.accepted) {
        let Some(written) = usage.access.write else { continue };
        if let Some((value, whose)) = last
            && written <= value
        {
            let what = format!("{} wrote {written} over the {value} of {}", usage.access.id, whose.access.id);
            findings.add(Finding::new(Check::F4, what).of(target).shown_by([whose.at, usage.at]));
        }
        last = Some((written, usage));
    }
}

/// Acknowledged writes of a counter that are not in its last value, and how many were acknowledged.
pub(super) fn lost(ledger: &Ledger<'_>, target: &Text) -> (u64, u64) {
    let of_target = ledger.uses.iter().filter(|usage| usage.access.target == *target && usage.access.accepted);
    let written: Vec<_> = of_target.filter_map(|usage| usage.access.write).collect();
    let acknowledged = written.len() as u64;
    (acknowledged.saturating_sub(written.last().copied().unwrap_or_default()), acknowledged)
}

/// F5: one grant shows one token at every resource.
fn same_everywhere(ledger: &Ledger<'_>, findings: &mut Findings) {
    let mut shown: HashMap<usize, &Use<'_>> = HashMap::new();
    for usage in ledger.uses.iter().filter(|usage| usage.access.fenced) {
        let Some(place) = usage.claim else { continue };
        let first = shown.entry(place).or_insert(usage);
        let granted = ledger.claims[place].token();
        if first.access.token != usage.access.token || granted.is_some_and(|token| Some(token) != usage.access.token) {
            let what = format!("{} showed another token than the one of its grant", usage.access.id);
            let grant = ledger.claims[place].granted().map_or(first.at, |(mark, _)| mark);
            findings.add(Finding::new(Check::F5, what).of(&usage.access.target).shown_by([grant, usage.at]));
        }
    }
}
