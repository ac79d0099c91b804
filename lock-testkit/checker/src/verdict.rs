//! The checker's answer.

use std::fmt;

use serde::Serialize;

use super::check::Check;
use super::summary::Summary;
use super::violation::{Findings, Violation};

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
