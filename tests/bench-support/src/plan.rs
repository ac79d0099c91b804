//! The selection of the parts to run, and their duration.

use std::time::Duration;

use crate::Outcome;

/// The choices made on the command line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Plan {
    /// The time for which each variant is measured in one round.
    pub round: Duration,
    /// The number of rounds; the variants take turns in each.
    pub rounds: u32,
    /// Whether everything is to take a fraction of its time.
    pub quick: bool,
    wanted: Vec<String>,
}

impl Plan {
    /// Out of the arguments of `cargo bench -p CRATE -- [--quick] [PART ...]`: five rounds of this length, or with
    /// `--quick` two of a fifth of it.
    ///
    /// # Errors
    /// If there is no part of such a name.
    pub fn of_args(parts: &[&str], round: Duration) -> Outcome<Self> {
        Self::of(std::env::args().skip(1), parts, round)
    }

    fn of(args: impl Iterator<Item = String>, parts: &[&str], round: Duration) -> Outcome<Self> {
        let (flags, wanted): (Vec<_>, Vec<_>) = args.partition(|arg| arg.starts_with("--"));
        let unknown = wanted.iter().find(|arg| !parts.contains(&arg.as_str()));
        let unknown = unknown.or_else(|| flags.iter().find(|arg| !["--bench", "--quick"].contains(&arg.as_str())));
        if let Some(unknown) = unknown {
            return Err(format!("there is no part {unknown:?}, but {}; and --quick", parts.join(", ")).into());
        }
        let quick = flags.iter().any(|arg| arg == "--quick");
        let (round, rounds) = if quick { (round / 5, 2) } else { (round, 5) };
        Ok(Self { round, rounds, quick, wanted })
    }

    /// Whether this part is to be run: it was asked for, or none was.
    #[must_use]
    pub fn wants(&self, part: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|wanted| wanted == part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Outcome<Plan> {
        Plan::of(args.iter().map(ToString::to_string), &["idle", "held"], Duration::from_secs(1))
    }

    #[test]
    fn a_part_is_run_if_it_was_asked_for_or_none_was() {
        let (all, one) = (plan(&["--bench"]).unwrap(), plan(&["--bench", "--quick", "idle"]).unwrap());
        assert!(all.wants("idle") && all.wants("held") && one.wants("idle") && !one.wants("held"));
        assert_eq!((all.rounds, all.round, all.quick), (5, Duration::from_secs(1), false));
        assert_eq!((one.rounds, one.round, one.quick), (2, Duration::from_millis(200), true));
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        for unknown in ["idel", "--fast"] {
            assert!(plan(&[unknown]).unwrap_err().to_string().contains(unknown));
        }
    }
}
