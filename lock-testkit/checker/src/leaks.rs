//! Entries that are left at the server when everybody has gone.

use super::check::Check;
use super::finding::Finding;
use super::ledger::Ledger;
use super::violation::Findings;

pub(super) fn check(ledger: &Ledger<'_>, findings: &mut Findings) {
    for (mark, entries) in &ledger.residues {
        if let [first, ..] = entries {
            let what = format!("{} entries were left at the server, such as {first:?}", entries.len());
            findings.add(Finding::new(Check::LEAK, what).shown_by([*mark]));
        }
    }
}
