//! Turns in a row of one client at one lock, after which it leaves the lock to others.

use std::time::Duration;

use lock_core::clock::BootInstant;

use super::CONTENDED_FOR;

/// The most times in a row that a client takes a lock which others want.
const TIMES: u32 = 8;
/// The longest time in a row that such a lock stays within a client.
const LASTING: Duration = Duration::from_millis(100);
/// The part of that time for which others have their turn then, between [`LEAST`] and [`MOST`].
const SHARE: u32 = 4;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(30);

/// Turns in a row, of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Fairness {
    since: Option<BootInstant>,
    times: u32,
    others_until: Option<BootInstant>,
    refused_at: Option<BootInstant>,
}

impl Fairness {
    /// Whether the lock may be taken once more. If not, others have their turn for a moment, and a new row begins.
    pub(super) fn may_continue(&mut self, now: BootInstant) -> bool {
        if now < self.others_until() {
            return false;
        }
        let since = self.since.unwrap_or(now);
        if self.times < TIMES && now.since(since) < LASTING {
            return true;
        }
        let share = (now.since(since) / SHARE).clamp(LEAST, MOST);
        *self = Self { others_until: Some(now.plus(share)), refused_at: self.refused_at, ..Self::default() };
        false
    }

    /// Counts a lock that was taken once more.
    pub(super) fn counts(&mut self, now: BootInstant) {
        self.since.get_or_insert(now);
        self.times += 1;
    }

    /// The instant until which a claim leaves the lock to others: during their turn, or if they want the lock and our turns in a row are
    /// used up.
    pub(super) fn yields_until(&mut self, now: BootInstant) -> Option<BootInstant> {
        let is_their_turn = now < self.others_until() || self.is_contended(now) && !self.may_continue(now);
        is_their_turn.then(|| self.others_until())
    }

    /// Counts a lock that was free, and taken by a claim. If others want it that is one more time in a row; otherwise no row is counted.
    pub(super) fn claimed(&mut self, now: BootInstant) {
        if self.is_contended(now) {
            self.counts(now);
        } else {
            self.reset();
        }
    }

    /// Begins a new row: the lock was taken after somebody else had it.
    pub(super) fn reset(&mut self) {
        *self = Self { refused_at: self.refused_at, ..Self::default() };
    }

    /// Notes that somebody else has the lock.
    pub(super) fn refused(&mut self, now: BootInstant) {
        self.refused_at = Some(now);
    }

    /// The instant until which others have their turn.
    pub(super) fn others_until(&self) -> BootInstant {
        self.others_until.unwrap_or(BootInstant::from_origin(Duration::ZERO))
    }

    /// Whether others seem to want it too.
    pub(super) fn is_contended(&self, now: BootInstant) -> bool {
        self.refused_at.is_some_and(|refused| now.since(refused) < CONTENDED_FOR)
    }
}
