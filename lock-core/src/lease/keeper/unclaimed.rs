//! Losses that were announced before their leases were registered: of a session, say, that ended when the grant was on its way to its guard.

use std::collections::HashMap;
use std::mem;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::Notice;
use crate::owner::GrantId;

/// The time for which a notice is kept at least. A grant is registered by the poll that takes it.
const KEPT: Duration = Duration::from_secs(1);

/// The notices that are kept of one such time, at most. Whoever is told by none hears of the loss at the next renewal, or at the deadline.
const MOST: usize = 10_000;

/// The notices for which there was no lease. Most are of leases that have ended, or of attempts that wait: they are forgotten.
#[derive(Debug)]
pub(super) struct UnclaimedNotices {
    young: HashMap<GrantId, Notice>,
    old: HashMap<GrantId, Notice>,
    /// The instant from which on notices are young.
    since: BootInstant,
}

impl Default for UnclaimedNotices {
    fn default() -> Self {
        let (young, old) = Default::default();
        Self { young, old, since: BootInstant::from_origin(Duration::ZERO) }
    }
}

impl UnclaimedNotices {
    /// Keeps a notice that was heard now.
    pub(super) fn keep(&mut self, now: BootInstant, notice: Notice) {
        self.forget(now);
        if self.young.len() < MOST {
            self.young.insert(notice.grant, notice);
        }
    }

    /// Takes the notice of this grant, if there was one.
    pub(super) fn take(&mut self, grant: GrantId) -> Option<Notice> {
        self.young.remove(&grant).or_else(|| self.old.remove(&grant))
    }

    /// Returns the instant by which all that is kept may be forgotten.
    pub(super) fn forgets_at(&self) -> BootInstant {
        if self.young.is_empty() && self.old.is_empty() { BootInstant::FAR_FUTURE } else { self.since.plus(KEPT * 2) }
    }

    /// Forgets what was heard too long ago.
    pub(super) fn forget(&mut self, now: BootInstant) {
        let age = now.since(self.since);
        if age >= KEPT {
            self.old = mem::take(&mut self.young);
            self.since = now;
        }
        if age >= KEPT * 2 {
            self.old = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::LossReason;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    fn notice(number: u128) -> Notice {
        let grant = GrantId::from_bytes(number.to_be_bytes());
        Notice { grant, reason: LossReason::SessionExpired, lost_by: at(0) }
    }

    #[test]
    fn a_notice_is_kept_for_a_second_and_for_two_at_most() {
        let mut unclaimed = UnclaimedNotices::default();
        let mut is_kept = |heard, asked| {
            unclaimed.keep(at(heard), notice(1));
            unclaimed.forget(at(asked));
            unclaimed.take(notice(1).grant).is_some()
        };
        assert!(is_kept(10_000, 10_999) && is_kept(10_999, 11_999));
        assert!(!is_kept(20_000, 22_000));
    }

    #[test]
    fn a_notice_is_taken_once() {
        let mut unclaimed = UnclaimedNotices::default();
        unclaimed.keep(at(0), notice(1));
        assert_eq!(unclaimed.take(notice(2).grant).map(|notice| notice.grant), None);
        assert_eq!(unclaimed.take(notice(1).grant).map(|notice| notice.grant), Some(notice(1).grant));
        assert!(unclaimed.take(notice(1).grant).is_none());
    }

    #[test]
    fn of_too_many_notices_the_first_ones_are_kept_and_all_are_forgotten() {
        let mut unclaimed = UnclaimedNotices::default();
        (0..=MOST as u128).for_each(|number| unclaimed.keep(at(0), notice(number)));
        assert!(unclaimed.take(notice(0).grant).is_some() && unclaimed.take(notice(MOST as u128).grant).is_none());
        assert_eq!(unclaimed.forgets_at(), at(2_000));
        unclaimed.forget(at(2_000));
        assert_eq!((unclaimed.young.len(), unclaimed.old.capacity()), (0, 0));
        assert_eq!(unclaimed.forgets_at(), BootInstant::FAR_FUTURE);
    }
}
