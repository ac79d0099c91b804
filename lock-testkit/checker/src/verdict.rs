//! The checker's answer.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use super::summary::Summary;
use crate::history::event::Text;

/// The three answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Every check was passed, and there was enough to check.
    Ok,
    /// A check was not passed: whatever else may be missing, this cannot have been.
    Illegal,
    /// Nothing is wrong, but too little was seen to say that all is right.
    Unknown,
}

/// The checks, as `docs/histories.md` defines them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub enum Check {
    /// Two holders of an exclusive lock.
    ME,
    /// A writer beside somebody else.
    RW,
    /// More permits in use than there are.
    SEM,
    /// A reentrant lock that miscounts.
    RE,
    /// Several locks at once that were not all or nothing.
    MULTI,
    /// Tokens that do not grow.
    F1,
    /// A fenced resource that admitted an old token.
    F2,
    /// A fenced resource that refused the newest token of a holder.
    F3,
    /// A lost update.
    F4,
    /// A token that is not good at every resource.
    F5,
    /// A grant that was given back twice.
    R1,
    /// A release that took the lock from another holder.
    R2,
    /// A release that said what was not so.
    R3,
    /// A holder that believed in its lease for too long.
    L1,
    /// A holder that was told of its loss too late.
    L2,
    /// A holder that did not notice that its entry was gone.
    L3,
    /// A loss without a cause.
    E1,
    /// A lock that was free while somebody waited.
    P1,
    /// A waiter that was forgotten.
    P2,
    /// A call that came back too late.
    P3,
    /// A refusal although nobody held.
    P4,
    /// A waiter that was overtaken.
    P5,
    /// A release that woke up too many.
    P6,
    /// Something that was left behind.
    LEAK,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

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

/// The judgement of a history.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Judgement {
    /// The answer.
    pub verdict: Verdict,
    /// The violations, at most one for each check and lock: they make it illegal.
    pub violations: Vec<Violation>,
    /// The doubts: they make it unknown.
    pub doubts: Vec<String>,
    /// The figures of the run.
    pub summary: Summary,
}

impl Judgement {
    pub(super) fn of(findings: Findings, doubts: Vec<String>, summary: Summary) -> Self {
        let violations = findings.finish();
        let verdict = match (violations.is_empty(), doubts.is_empty()) {
            (false, _) => Verdict::Illegal,
            (true, false) => Verdict::Unknown,
            (true, true) => Verdict::Ok,
        };
        Self { verdict, violations, doubts, summary }
    }

    /// Whether this check failed.
    #[must_use]
    pub fn is_rejected_by(&self, check: Check) -> bool {
        self.violations.iter().any(|violation| violation.check == check)
    }
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.summary)?;
        for doubt in &self.doubts {
            writeln!(f, "unknown: {doubt}")?;
        }
        for Violation { check, res, what, count, .. } in &self.violations {
            let res = res.as_ref().map_or_else(String::new, |res| format!(" {res}:"));
            let more = if *count > 1 { format!(" ({count} times)") } else { String::new() };
            writeln!(f, "illegal: {check}:{res} {what}{more}")?;
        }
        write!(f, "verdict: {:?}", self.verdict)
    }
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

    fn finish(self) -> Vec<Violation> {
        let mut violations: Vec<_> = self.0.into_values().collect();
        violations.sort_by(|a, b| (a.check, &a.res).cmp(&(b.check, &b.res)));
        violations
    }
}
