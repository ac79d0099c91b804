//! One acquisition, with what became of it.

use super::mark::{CallEnd, Deed, Mark};
use crate::history::event::{Ask, Change, Done, Granted, Renewed, Sample, Text};

/// One acquisition.
#[derive(Debug)]
pub(super) struct Claim<'h> {
    pub(super) id: &'h Text,
    pub(super) proc: &'h Text,
    /// The lock's place among the locks.
    pub(super) lock: usize,
    pub(super) asked: Mark,
    pub(super) ask: &'h Ask,
    /// Whether its answer was stamped before its request: nothing is known of it then.
    pub(super) is_early: bool,
    pub(super) answer: CallEnd<'h, Granted>,
    pub(super) checks: Vec<(Mark, Sample)>,
    pub(super) renewals: Vec<(Mark, CallEnd<'h, Renewed>)>,
    pub(super) changes: Vec<Deed<'h, Change, Done>>,
    pub(super) releases: Vec<Deed<'h, Sample, Done>>,
    pub(super) lost: Option<(Mark, &'h Text)>,
    /// The instant by which a later holder proves that it is gone.
    pub(super) gone_by: Option<u64>,
}

impl<'h> Claim<'h> {
    pub(super) fn granted(&self) -> Option<(Mark, &'h Granted)> {
        self.answer.ok()
    }

    pub(super) fn token(&self) -> Option<u64> {
        self.granted().and_then(|(_, granted)| granted.token)
    }

    /// Whether it is not the outermost level of a reentrant lock.
    pub(super) fn is_nested(&self) -> bool {
        self.granted().is_some_and(|(_, granted)| granted.depth.is_some_and(|depth| depth > 1))
    }

    pub(super) fn is_try(&self) -> bool {
        self.ask.wait == Some(0)
    }

    /// Whether it is one of several that were asked for at once: when each of them was waited for, and whether it was had
    /// for a while although not all could be, is not known.
    pub(super) fn is_grouped(&self) -> bool {
        self.ask.group.is_some()
    }

    /// Whether something was done with the lock: it was renewed, changed or released.
    pub(super) fn is_in_use(&self) -> bool {
        !(self.renewals.is_empty() && self.changes.is_empty() && self.releases.is_empty())
    }

    /// Whether somebody else was said to hold.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.answer, CallEnd::Fail(_, failed) if &*failed.err == "held")
    }
}
