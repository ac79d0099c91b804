//! Judges histories: [`Verdict::Ok`], [`Verdict::Illegal`] with the shortest witness, or [`Verdict::Unknown`].
//!
//! Each acquisition has a *certain* interval, in which its holder said that it held, and a *possible* one, in which the
//! server may have had it. Only certain intervals accuse, possible ones excuse: whatever a machine that is busy does to the
//! stamps, nobody is accused of what was not. Every check takes O(n log n). `docs/histories.md` defines them.
//!
//! ```
//! use lock_testkit_checker::history::{History, Rules};
//! use lock_testkit_checker::{Check, Verdict, check};
//!
//! let history = History::parse(r#"
//! {"t": 10, "proc": "a", "op": "acquire", "id": "a.1", "phase": "invoke", "owner": "a", "res": "x", "kind": "mutex", "ttl": 9000}
//! {"t": 20, "proc": "a", "op": "acquire", "id": "a.1", "phase": "ok"}
//! {"t": 30, "proc": "b", "op": "acquire", "id": "b.1", "phase": "invoke", "owner": "b", "res": "x", "kind": "mutex", "ttl": 9000}
//! {"t": 40, "proc": "b", "op": "acquire", "id": "b.1", "phase": "ok"}
//! {"t": 50, "proc": "a", "op": "check", "id": "a.1", "held": true}
//! {"t": 60, "proc": "a", "op": "end"}
//! "#)?;
//! let judgement = check(&history, None);
//! assert_eq!(judgement.verdict, Verdict::Illegal);
//! assert!(judgement.is_rejected_by(Check::ME));
//! # Ok::<(), lock_testkit_checker::history::ReadError>(())
//! ```

#![forbid(unsafe_code)]

mod belief;
mod exclusion;
mod fencing;
mod finding;
mod groups;
pub mod history;
mod leaks;
mod ledger;
mod loss;
mod order;
mod picture;
mod presence;
mod progress;
mod reentry;
mod release;
pub mod report;
mod resource;
mod succession;
mod sufficiency;
mod summary;
mod theft;
mod verdict;
mod windows;

#[cfg(test)]
mod tests;

pub use picture::{Bar, Picture, Seen, Shade, picture};
pub use summary::{Spread, Summary};
pub use verdict::{Check, Judgement, Verdict, Violation};

use self::ledger::Ledger;
use self::verdict::Findings;
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
];

/// Judges a history by its own rules, or by these.
#[must_use]
pub fn check(history: &History, rules: Option<&Rules>) -> Judgement {
    judge(history, &Ledger::of(history, rules))
}

fn judge(history: &History, ledger: &Ledger<'_>) -> Judgement {
    let mut findings = Findings::default();
    for family in FAMILIES {
        family(ledger, &mut findings);
    }
    let summary = Summary::of(history, ledger);
    let doubts = sufficiency::doubts(history, ledger, &summary);
    Judgement::of(findings, doubts, summary)
}
