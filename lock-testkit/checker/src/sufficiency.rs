//! Whether enough was seen to say that all is right: no green from an empty run.

use super::fencing;
use super::ledger::Ledger;
use super::summary::Summary;
use crate::history::History;

pub(super) fn doubts(history: &History, ledger: &Ledger<'_>, summary: &Summary) -> Vec<String> {
    let mut doubts = Vec::new();
    let least = &ledger.rules.least;
    let counts = [
        ("grants", summary.grants, least.grants),
        ("contended grants", summary.contended, least.contended),
        ("grants of several locks at once", summary.groups, least.groups),
        ("proven faults", summary.faults, least.faults),
        ("looks at what is left", ledger.residues.len(), least.residues),
        ("slots that were worked on", summary.slots.1, least.slots),
        ("terms of leaders", summary.terms, least.terms),
        ("faults after which another one led", summary.rounds, least.rounds),
    ];
    for (what, seen, wanted) in counts {
        if seen < wanted {
            doubts.push(format!("{seen} {what}, at least {wanted} are needed"));
        }
    }
    if let Some(window) = ledger.windows.all().iter().find(|window| !window.proven) {
        doubts.push(format!("nothing proves that {} was applied to {}", window.name, window.target));
    }
    if let Some(window) = ledger.windows.all().iter().find(|window| window.to.is_none()) {
        doubts.push(format!("nothing tells when {} was over at {}", window.name, window.target));
    }
    let bare = fencing::bare(ledger);
    if bare > 0 {
        doubts.push(format!("{bare} grants without a token, although each is to have one"));
    }
    if let Some((event, misfit)) = ledger.misfits.first() {
        let all = ledger.misfits.len();
        doubts.push(format!("line {} is {misfit} ({all} lines fit nothing)", history.line(*event)));
    }
    if !ledger.has_ended {
        doubts.push("the history has no end: it may have been cut off".to_owned());
    }
    doubts
}
