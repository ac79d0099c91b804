//! Says what was found.

use std::time::Duration;

use super::check::Check;
use super::mark::Mark;
use super::violation::Violation;
use crate::history::event::Text;

/// A violation whose witness is not told yet.
#[derive(Debug)]
pub(super) struct Finding {
    check: Check,
    res: Option<Text>,
    what: String,
}

impl Finding {
    pub(super) fn new(check: Check, what: impl Into<String>) -> Self {
        Self { check, res: None, what: what.into() }
    }

    pub(super) fn of(mut self, res: &Text) -> Self {
        self.res = Some(res.clone());
        self
    }

    /// By these events.
    pub(super) fn shown_by(self, marks: impl IntoIterator<Item = Mark>) -> Violation {
        let mut marks: Vec<_> = marks.into_iter().collect();
        marks.sort_unstable();
        marks.dedup();
        let span = match marks.as_slice() {
            [first, .., last] => last.t - first.t,
            _ => 0,
        };
        let Self { check, res, what } = self;
        Violation { check, res, what, witness: marks.iter().map(|mark| mark.event).collect(), count: 1, span }
    }
}

/// Nanoseconds, for people.
pub(super) fn time(nanos: u64) -> String {
    format!("{:.1?}", Duration::from_nanos(nanos))
}
