//! The check that several locks are held, for those who ask often.

use std::time::Duration;

use super::one_guard::OneGuard;
use crate::clock::BootInstant;
use crate::error::{Error, Phase};

/// Looks at each lock only after a loss of their client, and when the deadline has passed that came first at the last look. No deadline
/// ever comes nearer but by the clock, and whoever has borrowed the guards ends none of them.
pub(super) struct AllHeld<'a> {
    guards: &'a [OneGuard],
    /// No lease of theirs ends before this instant, unless one was lost since.
    ends_at: BootInstant,
    /// The losses of their client until then.
    losses: u64,
}

impl<'a> AllHeld<'a> {
    /// Nothing is known yet.
    pub(super) fn of(guards: &'a [OneGuard]) -> Self {
        Self { guards, ends_at: BootInstant::from_origin(Duration::ZERO), losses: 0 }
    }

    /// An error unless all of them are held.
    pub(super) fn check(&mut self, phase: Phase) -> Result<(), Error> {
        // All locks are of one client.
        let Some(first) = self.guards.first() else { return Ok(()) };
        let keeper = &first.keeper;
        keeper.ensure_running();
        // Read before the look: a loss that comes with it is looked for again.
        let losses = keeper.losses();
        if losses == self.losses && keeper.clock.now() < self.ends_at {
            return Ok(());
        }
        self.guards.iter().try_for_each(|guard| guard.check(phase))?;
        let deadlines = self.guards.iter().map(|guard| guard.live.deadline());
        self.ends_at = deadlines.min().unwrap_or(BootInstant::FAR_FUTURE);
        self.losses = losses;
        Ok(())
    }
}
