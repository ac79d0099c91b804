//! All checks of a history, and the judgement.
//!
//! `ledger.rs` puts the history together, claim by claim. Four files say what may be concluded from it: `belief.rs` for how long a
//! holder certainly believed, `theft.rs` for how long one may whose lock was taken away, `succession.rs` by when a later holder proves
//! that one is gone, `windows.rs` when something was wrong with whom. Then each family of checks has a file, and `sufficiency.rs` finds
//! out whether a history says too little.

use super::ledger::Ledger;
use super::summary::Summary;
use super::verdict::Judgement;
use super::violation::Findings;
use super::{
    exclusion, fencing, groups, leaks, loss, order, progress, records, reentry, release, resource, slots, succession,
    sufficiency, terms,
};
use crate::history::{History, Rules};

/// One family of checks.
type Family = fn(&Ledger<'_>, &mut Findings);

const FAMILIES: &[Family] = &[
    exclusion::check,
    reentry::check,
    groups::check,
    fencing::check,
    resource::check,
    release::check,
    loss::check,
    progress::check,
    order::check,
    leaks::check,
    slots::check,
    terms::check,
    records::check,
];

/// Judges a history by its own rules, or by these.
#[must_use]
pub fn check(history: &History, rules: Option<&Rules>) -> Judgement {
    judge(history, &read(history, rules))
}

/// Puts a history together.
pub(super) fn read<'h>(history: &'h History, rules: Option<&Rules>) -> Ledger<'h> {
    let mut ledger = Ledger::of(history, rules);
    succession::note(&mut ledger);
    ledger
}

pub(super) fn judge(history: &History, ledger: &Ledger<'_>) -> Judgement {
    let mut findings = Findings::default();
    for family in FAMILIES {
        family(ledger, &mut findings);
    }
    let summary = Summary::of(history, ledger);
    let doubts = sufficiency::doubts(history, ledger, &summary);
    Judgement::of(findings, doubts, summary)
}
