//! The violations of a history.

use std::collections::HashMap;

use serde::Serialize;

use super::check::Check;
use crate::history::event::Text;

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The check that shows it.
    pub check: Check,
    /// The lock, if it is about one.
    pub res: Option<Text>,
    /// The violation in words.
    pub what: String,
    /// The events that prove it, by their places in the history; no other proof of this check and lock is shorter.
    pub witness: Vec<usize>,
    /// The number of times that this check failed for this lock.
    pub count: usize,
    /// From the first to the last event of the witness, in nanoseconds.
    pub span: u64,
}

/// Collects violations, and keeps the one with the shortest witness for each check and lock.
#[derive(Debug, Default)]
pub(super) struct Findings(HashMap<(Check, Option<Text>), Violation>);

impl Findings {
    pub(super) fn add(&mut self, found: Violation) {
        let key = (found.check, found.res.clone());
        let Some(known) = self.0.get_mut(&key) else {
            self.0.insert(key, found);
            return;
        };
        let count = known.count + 1;
        if (found.witness.len(), found.span) < (known.witness.len(), known.span) {
            *known = found;
        }
        known.count = count;
    }

    pub(super) fn finish(self) -> Vec<Violation> {
        let mut violations: Vec<_> = self.0.into_values().collect();
        violations.sort_by(|a, b| (a.check, &a.res).cmp(&(b.check, &b.res)));
        violations
    }
}
