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
mod check;
mod claim;
mod exclusion;
mod fencing;
mod finding;
mod groups;
pub mod history;
mod judge;
mod leaks;
mod ledger;
mod loss;
mod mark;
mod order;
mod picture;
mod piece;
mod presence;
mod progress;
mod records;
mod reentry;
mod release;
pub mod report;
mod resource;
mod slots;
mod succession;
mod sufficiency;
mod summary;
mod terms;
mod theft;
mod verdict;
mod violation;
mod windows;

#[cfg(test)]
mod tests;

pub use check::Check;
pub use judge::check;
pub use picture::{Bar, Picture, Seen, Shade, picture};
pub use summary::{Spread, Summary};
pub use verdict::{Judgement, Verdict};
pub use violation::Violation;
