//! The work of the workers: the locks themselves, or what is built on them.

use std::time::Duration;

use clap::ValueEnum;
use lock_core::{Guarantees, Support};
use lock_testkit_checker::history::{Least, Rules};
use serde::{Deserialize, Serialize};

/// The work of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Workload {
    /// Every kind of lock, and counters behind one of them.
    Locks,
    /// Jobs that run once per slot.
    Once,
    /// A leader among processes.
    Leader,
}

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Locks => "locks",
            Self::Once => "once",
            Self::Leader => "leader",
        }
    }

    /// Whether a fault is one that this work can be judged under.
    pub(crate) fn bears(self, fault: &str, guarantees: &Guarantees) -> bool {
        match (self, fault) {
            (Self::Locks, _) => true,
            // The robbed holder believes until it hears of it.
            (_, "steal-session") => false,
            // A record has to outlive the fault. The run's servers write down what they acknowledge, and lose no power.
            (Self::Once, "restart-server" | "flush-server") => guarantees.record_across_restart != Support::No,
            _ => true,
        }
    }

    /// Whether records outlive all of these faults.
    pub(crate) fn keeps_records(names: &[&str], guarantees: &Guarantees) -> bool {
        guarantees.record_across_restart != Support::No
            || !names.iter().any(|name| matches!(*name, "restart-server" | "flush-server"))
    }

    /// Asks for as much as this work does in this time, or for so many slots or rounds.
    pub(crate) fn expect(self, rules: &mut Rules, length: Duration, wanted: Option<usize>) {
        let seconds = usize::try_from(length.as_secs()).unwrap_or(usize::MAX);
        let least = &mut rules.least;
        match self {
            Self::Locks => {
                least.contended = seconds * 5;
                least.grants = seconds * 8;
                least.groups = seconds / 10;
            }
            Self::Once | Self::Leader => {
                let (faults, residues) = (least.faults, least.residues);
                *least = Least::default();
                (least.grants, least.contended, least.faults, least.residues) = (0, 0, faults, residues);
                if self == Self::Once {
                    least.slots = wanted.unwrap_or(seconds);
                } else {
                    (least.terms, least.rounds) = ((seconds / 30).max(1), wanted.unwrap_or_default());
                }
            }
        }
    }
}
