//! Says what was found.

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

/// Nanoseconds, for people: three digits, as the report's page shows them.
pub(super) fn time(nanos: u64) -> String {
    let micros = nanos as f64 / 1e3;
    match micros {
        ..1.0 => format!("{micros} µs"),
        ..1e3 => format!("{} µs", without_zeros(&three_digits(micros))),
        ..1e6 => format!("{} ms", three_digits(micros / 1e3)),
        _ => format!("{} s", three_digits(micros / 1e6)),
    }
}

/// A number from 1 on, with three digits or all of those before its point.
fn three_digits(number: f64) -> String {
    let places = match number {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.places$}")
}

/// Returns a number without the zeros that end its fraction.
fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_the_page_shows_them() {
        for (nanos, told) in [
            (0, "0 µs"),
            (1, "0.001 µs"),
            (1_500, "1.5 µs"),
            (100_000, "100 µs"),
            (1_000_000, "1.00 ms"),
            (12_340_000, "12.3 ms"),
            (1_000_000_000, "1.00 s"),
            (61_700_000_000, "61.7 s"),
            (240_000_000_000, "240 s"),
        ] {
            assert_eq!(time(nanos), told);
        }
    }
}
