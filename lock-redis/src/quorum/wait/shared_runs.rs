//! The runs of a client's turns at keys that foreign clients use too.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::BootInstant;

use super::fairness::{HandoverRun, REST};

/// The time after which a key that nobody releases any more begins a new run.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// The number of runs that are kept. Of more, those that are over are forgotten, and then the oldest one.
const RUNS: usize = 1024;

/// The runs, and when each went on last. They outlast a queue, so that a lock that one task takes again and again is left free now and
/// then too.
#[derive(Debug, Default)]
pub(super) struct SharedRuns(Mutex<HashMap<String, (HandoverRun, BootInstant)>>);

impl SharedRuns {
    /// Counts a release of a key; returns for how long it is left free.
    pub(super) fn released(&self, lock: &str, now: BootInstant) -> Duration {
        let mut runs = self.runs();
        if runs.len() >= RUNS {
            runs.retain(|_, (_, last)| now.since(*last) < FORGOTTEN);
        }
        if runs.len() >= RUNS
            && !runs.contains_key(lock)
            && let Some(oldest) = runs.iter().min_by_key(|(_, (_, last))| *last).map(|(lock, _)| lock.clone())
        {
            runs.remove(&oldest);
        }
        let (run, last) = runs.entry(lock.to_owned()).or_insert_with(|| (HandoverRun::default(), now));
        if now.since(*last) >= FORGOTTEN {
            *run = HandoverRun::default();
        }
        *last = now;
        run.set_others_wait(true);
        if run.may_stay(now) {
            return Duration::ZERO;
        }
        run.rest(now);
        REST
    }

    /// The end of a rest, in which this client does not ask for a key.
    pub(super) fn rests_until(&self, lock: &str, now: BootInstant) -> Option<BootInstant> {
        self.runs().get(lock).and_then(|(run, _)| run.rests_until(now))
    }

    /// Every critical section leaves the data whole.
    fn runs(&self) -> MutexGuard<'_, HashMap<String, (HandoverRun, BootInstant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between two of its releases nobody of this client waits: the account is kept all the same.
    #[test]
    fn a_key_is_left_free_now_and_then() {
        let (runs, now) = (SharedRuns::default(), BootInstant::from_origin(Duration::from_secs(1)));
        let rested = (0..=20).position(|_| runs.released("a", now) == REST);
        assert!(rested.is_some(), "21 releases in a row");
        assert!(runs.rests_until("a", now).is_some());
        assert_eq!(runs.released("b", now), Duration::ZERO, "another key");
    }
}
