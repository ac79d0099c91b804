//! Hand-overs in a row between tasks of one client: no I/O, no clock.

use std::time::Duration;

use lock_core::clock::BootInstant;

/// The most hand-overs in a row while other clients wait.
const TIMES: u32 = 20;
/// The longest time of hand-overs in a row while other clients wait.
const LASTING: Duration = Duration::from_millis(200);

/// A row of hand-overs.
#[derive(Debug, Default)]
pub(super) struct Run {
    times: u32,
    since: Option<BootInstant>,
    others_wait: bool,
}

impl Run {
    /// Whether the lock may stay in this client once more.
    pub(super) fn may_continue(&self, now: BootInstant) -> bool {
        !self.others_wait || self.times < TIMES && self.since.is_none_or(|since| now.since(since) < LASTING)
    }

    /// Counts one more hand-over.
    pub(super) fn continues(&mut self, now: BootInstant) {
        self.since.get_or_insert(now);
        self.times += 1;
    }

    /// Begins anew: other clients had their turn.
    pub(super) fn reset(&mut self) {
        (self.times, self.since) = (0, None);
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
        let mut run = Run::default();
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
}
