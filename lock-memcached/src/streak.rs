//! How often a lock stays within one process before others get their turn.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// So many hand-overs in a row at most.
const TIMES: u32 = 8;
/// Hand-overs for so long in a row at most.
const LASTING: Duration = Duration::from_millis(100);
/// For how long others have their turn then: a part of the time that we had, within bounds.
const SHARE: u32 = 4;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(30);

/// Hand-overs in a row, within one client.
#[derive(Debug, Default)]
pub(crate) struct Streak {
    since: Option<BootInstant>,
    times: u32,
    others_until: Option<BootInstant>,
}

impl Streak {
    /// Whether the lock may be handed over once more. If not, others have their turn for a moment, and a new row begins.
    pub(crate) fn goes_on(&mut self, now: BootInstant) -> bool {
        if now < self.others_until() {
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if self.times < TIMES && now.since(since) < LASTING {
            self.times += 1;
            return true;
        }
        let share = (now.since(since) / SHARE).clamp(LEAST, MOST);
        *self = Self { others_until: Some(now.plus(share)), ..Self::default() };
        false
    }

    /// Until when others have their turn.
    pub(crate) fn others_until(&self) -> BootInstant {
        self.others_until.unwrap_or(BootInstant::from_origin(Duration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_row_ends_after_eight_times_or_a_tenth_of_a_second() {
        let mut streak = Streak::default();
        assert!((0..8).all(|_| streak.goes_on(at(1000))));
        assert!(!streak.goes_on(at(1000)));
        assert!(!streak.goes_on(at(1000)), "others have their turn");
        assert!(streak.goes_on(at(1001)), "for a millisecond");
        assert!(!streak.goes_on(at(1101)));
        assert_eq!(streak.others_until(), at(1126), "for a quarter of what we had");
    }
}
