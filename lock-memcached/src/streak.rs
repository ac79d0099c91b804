//! How often a lock stays within one client before others get their turn.
//!
//! Between a release and the next claim of the same client there is no time in which the look of another one would meet the
//! free lock, but by chance. So a client that was kept waiting by others a moment ago, and one whose tasks hand a lock over to
//! each other, leaves it free now and then.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// So many times in a row at most.
const TIMES: u32 = 8;
/// For so long in a row at most.
const LASTING: Duration = Duration::from_millis(100);
/// For how long others have their turn then: a part of the time that we had, within bounds.
const SHARE: u32 = 4;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(30);
/// For how long others count as wanting a lock after one of them kept us waiting for it.
pub(crate) const WANTED_FOR: Duration = Duration::from_secs(1);

/// Turns in a row, of one client.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    since: Option<BootInstant>,
    times: u32,
    others_until: Option<BootInstant>,
    refused_at: Option<BootInstant>,
}

impl Streak {
    /// Whether the lock may be taken once more. If not, others have their turn for a moment, and a new row begins.
    pub(crate) fn goes_on(&mut self, now: BootInstant) -> bool {
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

    /// It was taken once more.
    pub(crate) fn counts(&mut self, now: BootInstant) {
        self.since.get_or_insert(now);
        self.times += 1;
    }

    /// Until when a claim has to leave the lock to others: while they have their turn, and if they want it and our row is over.
    pub(crate) fn others_are_next(&mut self, now: BootInstant) -> Option<BootInstant> {
        let is_their_turn = now < self.others_until() || self.is_wanted(now) && !self.goes_on(now);
        is_their_turn.then(|| self.others_until())
    }

    /// It was free, and taken by a claim. If others want it that is one more time in a row; otherwise no row is counted.
    pub(crate) fn claimed(&mut self, now: BootInstant) {
        if self.is_wanted(now) {
            self.counts(now);
        } else {
            self.begins_anew();
        }
    }

    /// It was taken after somebody else had it.
    pub(crate) fn begins_anew(&mut self) {
        *self = Self { refused_at: self.refused_at, ..Self::default() };
    }

    /// Somebody else has it.
    pub(crate) fn refused(&mut self, now: BootInstant) {
        self.refused_at = Some(now);
    }

    /// Until when others have their turn.
    pub(crate) fn others_until(&self) -> BootInstant {
        self.others_until.unwrap_or(BootInstant::from_origin(Duration::ZERO))
    }

    /// Whether others seem to want it too.
    pub(crate) fn is_wanted(&self, now: BootInstant) -> bool {
        self.refused_at.is_some_and(|refused| now.since(refused) < WANTED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    /// Takes the lock once more, if it may be.
    fn takes(streak: &mut Streak, ms: u64) -> bool {
        let may = streak.goes_on(at(ms));
        if may {
            streak.counts(at(ms));
        }
        may
    }

    #[test]
    fn a_row_ends_after_eight_times_or_a_tenth_of_a_second() {
        let mut streak = Streak::default();
        assert!((0..8).all(|_| takes(&mut streak, 1000)));
        assert!(!takes(&mut streak, 1000));
        assert!(!takes(&mut streak, 1000), "others have their turn");
        assert!(takes(&mut streak, 1001), "for a millisecond");
        assert!(!takes(&mut streak, 1101));
        assert_eq!(streak.others_until(), at(1126), "for a quarter of what we had");
    }

    #[test]
    fn claims_leave_the_lock_to_others_if_they_want_it() {
        let mut streak = Streak::default();
        for _ in 0..20 {
            assert_eq!(streak.others_are_next(at(1000)), None, "nobody else wants it");
            streak.claimed(at(1000));
        }
        streak.refused(at(1000));
        for _ in 0..8 {
            assert_eq!(streak.others_are_next(at(1000)), None);
            streak.claimed(at(1000));
        }
        assert_eq!(streak.others_are_next(at(1000)), Some(at(1001)));
        streak.claimed(at(1001));
        assert_eq!(streak.others_are_next(at(2100)), None, "nobody has wanted it for a second");
    }

    #[test]
    fn claims_leave_the_lock_to_others_while_they_have_their_turn() {
        let mut streak = Streak::default();
        while takes(&mut streak, 1000) {}
        assert_eq!(streak.others_are_next(at(1000)), Some(at(1001)));
        assert_eq!(streak.others_are_next(at(1001)), None);
    }
}
