//! Releases in a row that keep a lock in one client, or among our clients: no I/O, no clock.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// The most hand-overs in a row while other clients wait.
const TIMES: u32 = 20;
/// The longest time of hand-overs in a row while other clients wait.
const LASTING: Duration = Duration::from_millis(200);

/// The time for which a key that foreign clients use too is left free then: they ask again and again, and have to meet it.
pub(super) const REST: Duration = Duration::from_millis(50);

/// A row of hand-overs.
#[derive(Debug, Default)]
pub(super) struct HandoverRun {
    times: u32,
    since: Option<BootInstant>,
    others_wait: bool,
    rests_until: Option<BootInstant>,
}

impl HandoverRun {
    /// Whether the lock may stay in this client once more.
    fn may_continue(&self, now: BootInstant) -> bool {
        !self.others_wait || self.times < TIMES && self.since.is_none_or(|since| now.since(since) < LASTING)
    }

    /// Counts one more hand-over.
    fn continues(&mut self, now: BootInstant) {
        self.since.get_or_insert(now);
        self.times += 1;
    }

    /// Counts one more hand-over if the run may continue; if not, other clients have their turn, and a new run begins.
    pub(super) fn may_stay(&mut self, now: BootInstant) -> bool {
        let may_stay = self.may_continue(now);
        if may_stay {
            self.continues(now)
        } else {
            self.reset()
        }
        may_stay
    }

    /// Begins anew: other clients had their turn.
    fn reset(&mut self) {
        (self.times, self.since) = (0, None);
    }

    /// Begins anew after a rest, in which foreign clients have their turn.
    pub(super) fn rest(&mut self, now: BootInstant) {
        *self = Self { others_wait: self.others_wait, rests_until: Some(now.plus(REST)), ..Self::default() };
    }

    /// The end of the rest that goes on.
    pub(super) fn rests_until(&self, now: BootInstant) -> Option<BootInstant> {
        self.rests_until.filter(|until| now < *until)
    }

    /// Notes whether other clients wait for the lock.
    pub(super) fn set_others_wait(&mut self, others_wait: bool) {
        self.others_wait = others_wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_run_is_limited_only_while_others_wait() {
        let mut run = HandoverRun::default();
        for _ in 0..1000 {
            assert!(run.may_continue(at(5000)));
            run.continues(at(0));
        }
        run.set_others_wait(true);
        assert!(!run.may_continue(at(0)));
        run.reset();
        for _ in 0..TIMES {
            assert!(run.may_continue(at(7)));
            run.continues(at(7));
        }
        assert!(!run.may_continue(at(7)), "twenty hand-overs in a row");
        run.reset();
        run.continues(at(1000));
        assert!(run.may_continue(at(1199)));
        assert!(!run.may_continue(at(1200)), "for 200 ms");
    }

    #[test]
    fn a_rest_begins_a_new_run() {
        let mut run = HandoverRun::default();
        run.set_others_wait(true);
        (0..TIMES).for_each(|_| run.continues(at(0)));
        assert!(!run.may_continue(at(0)) && run.rests_until(at(0)).is_none());
        run.rest(at(0));
        assert_eq!((run.rests_until(at(49)), run.rests_until(at(50))), (Some(at(50)), None));
        (0..TIMES).for_each(|_| assert!(run.may_stay(at(50))));
        assert!(!run.may_stay(at(50)), "others wait still");
    }
}
