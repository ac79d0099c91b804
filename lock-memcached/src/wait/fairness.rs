//! Fairness between clients: a lock stays within one only for so long, before others get their turn.
//!
//! Between a release and the next claim of the same client there is no time in which the look of another one would meet the
//! free lock, but by chance. So a client that was kept waiting by others a moment ago, and one whose tasks hand a lock over to
//! each other, leaves it free now and then.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// The most times in a row that a client takes a lock which others want.
const TIMES: u32 = 8;
/// The longest time in a row that such a lock stays within a client.
const LASTING: Duration = Duration::from_millis(100);
/// The part of that time for which others have their turn then, between [`LEAST`] and [`MOST`].
const SHARE: u32 = 4;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(30);
/// Time for which others count as wanting a lock after one of them kept us waiting for it.
pub(crate) const CONTENDED_FOR: Duration = Duration::from_secs(1);

/// Turns in a row, of one client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Fairness {
    since: Option<BootInstant>,
    times: u32,
    others_until: Option<BootInstant>,
    refused_at: Option<BootInstant>,
}

impl Fairness {
    /// Whether the lock may be taken once more. If not, others have their turn for a moment, and a new row begins.
    pub(crate) fn may_continue(&mut self, now: BootInstant) -> bool {
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
    pub(crate) fn counts(&mut self, now: BootInstant) {
        self.since.get_or_insert(now);
        self.times += 1;
    }

    /// The instant until which a claim leaves the lock to others: while they have their turn, and if they want it and our row is over.
    pub(crate) fn yields_until(&mut self, now: BootInstant) -> Option<BootInstant> {
        let is_their_turn = now < self.others_until() || self.is_contended(now) && !self.may_continue(now);
        is_their_turn.then(|| self.others_until())
    }

    /// Counts a lock that was free, and taken by a claim. If others want it that is one more time in a row; otherwise no row is counted.
    pub(crate) fn claimed(&mut self, now: BootInstant) {
        if self.is_contended(now) {
            self.counts(now);
        } else {
            self.reset();
        }
    }

    /// Begins a new row: the lock was taken after somebody else had it.
    pub(crate) fn reset(&mut self) {
        *self = Self { refused_at: self.refused_at, ..Self::default() };
    }

    /// Notes that somebody else has the lock.
    pub(crate) fn refused(&mut self, now: BootInstant) {
        self.refused_at = Some(now);
    }

    /// The instant until which others have their turn.
    pub(crate) fn others_until(&self) -> BootInstant {
        self.others_until.unwrap_or(BootInstant::from_origin(Duration::ZERO))
    }

    /// Whether others seem to want it too.
    pub(crate) fn is_contended(&self, now: BootInstant) -> bool {
        self.refused_at.is_some_and(|refused| now.since(refused) < CONTENDED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    /// Takes the lock once more, if it may be.
    fn takes(fairness: &mut Fairness, ms: u64) -> bool {
        let may = fairness.may_continue(at(ms));
        if may {
            fairness.counts(at(ms));
        }
        may
    }

    #[test]
    fn a_row_ends_after_eight_times_or_a_tenth_of_a_second() {
        let mut fairness = Fairness::default();
        assert!((0..8).all(|_| takes(&mut fairness, 1000)));
        assert!(!takes(&mut fairness, 1000));
        assert!(!takes(&mut fairness, 1000), "others have their turn");
        assert!(takes(&mut fairness, 1001), "for a millisecond");
        assert!(!takes(&mut fairness, 1101));
        assert_eq!(fairness.others_until(), at(1126), "for a quarter of what we had");
    }

    #[test]
    fn claims_leave_the_lock_to_others_if_they_want_it() {
        let mut fairness = Fairness::default();
        for _ in 0..20 {
            assert_eq!(fairness.yields_until(at(1000)), None, "nobody else wants it");
            fairness.claimed(at(1000));
        }
        fairness.refused(at(1000));
        for _ in 0..8 {
            assert_eq!(fairness.yields_until(at(1000)), None);
            fairness.claimed(at(1000));
        }
        assert_eq!(fairness.yields_until(at(1000)), Some(at(1001)));
        for _ in 0..8 {
            assert_eq!(fairness.yields_until(at(1001)), None, "a new row");
            fairness.claimed(at(1001));
        }
        assert_eq!(fairness.yields_until(at(1001)), Some(at(1002)), "they want it still");
        assert_eq!(fairness.yields_until(at(2100)), None, "nobody has wanted it for a second");
    }

    #[test]
    fn claims_leave_the_lock_to_others_while_they_have_their_turn() {
        let mut fairness = Fairness::default();
        while takes(&mut fairness, 1000) {}
        assert_eq!(fairness.yields_until(at(1000)), Some(at(1001)));
        assert_eq!(fairness.yields_until(at(1001)), None);
    }
}
