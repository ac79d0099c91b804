//! The unanswered jobs of one place, and the pace at which they are tried again: pure, without clock or I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::driver::wait;

/// Pauses between two tries: the first one, and the longest.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The most jobs of one place that are tried again at once.
const WIDEST: usize = 1024;

#[derive(Debug)]
pub(super) struct WaitingJob<J> {
    pub(super) job: J,
    pub(super) until: BootInstant,
}

/// Jobs of one place that wait for its answer. They share one pause.
#[derive(Debug)]
pub(super) struct Lane<J> {
    jobs: BTreeMap<(u32, Reverse<u64>), WaitingJob<J>>,
    /// The number of jobs that may be tried at once, and of those that are.
    width: usize,
    trying: usize,
    /// The instant at which the next of them may be tried, and the pause after that if it is in vain.
    not_before: BootInstant,
    pause: Duration,
}

impl<J> Lane<J> {
    pub(super) fn new(now: BootInstant) -> Self {
        let not_before = now.plus(jittered(FIRST_PAUSE));
        Self { jobs: BTreeMap::new(), width: 1, trying: 0, not_before, pause: FIRST_PAUSE }
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether no job waits here or is being tried.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.trying == 0
    }

    /// A job that was tried so often got no answer. Of those that were tried as often the one with the highest number comes
    /// first.
    pub(super) fn wait(&mut self, tries: u32, number: u64, waiting: WaitingJob<J>) {
        self.jobs.insert((tries, Reverse(number)), waiting);
    }

    /// Takes the result of trying a job again.
    pub(super) fn tried(&mut self, now: BootInstant, answered: bool) {
        self.trying = self.trying.saturating_sub(1);
        if answered {
            (self.width, self.pause, self.not_before) = ((self.width * 2).min(WIDEST), FIRST_PAUSE, now);
            return;
        }
        self.width = 1;
        if now >= self.not_before {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            self.not_before = now.plus(jittered(self.pause));
        }
    }

    /// The next job to be tried now, whose outcome is to be told to [`tried`](Lane::tried).
    pub(super) fn due(&mut self, now: BootInstant) -> Option<J> {
        if self.trying >= self.width || now < self.not_before {
            return None;
        }
        let (_, waiting) = self.jobs.pop_first()?;
        self.trying += 1;
        Some(waiting.job)
    }

    /// Moves the jobs whose time is over.
    pub(super) fn over(&mut self, now: BootInstant, over: &mut Vec<J>) {
        sweep(&mut self.jobs, now, over);
    }

    /// The instant at which the next job may be tried.
    pub(super) fn wake_at(&self) -> BootInstant {
        let tries = !self.jobs.is_empty() && self.trying < self.width;
        if tries { self.not_before } else { BootInstant::FAR_FUTURE }
    }
}

/// Moves those whose time is over.
pub(super) fn sweep<K: Ord + Copy, J>(jobs: &mut BTreeMap<K, WaitingJob<J>>, now: BootInstant, over: &mut Vec<J>) {
    let keys: Vec<K> = jobs.iter().filter(|(_, waiting)| now >= waiting.until).map(|(key, _)| *key).collect();
    over.extend(keys.iter().filter_map(|key| jobs.remove(key)).map(|waiting| waiting.job));
}

/// The pause and up to once more as much, so that clients that were cut off together do not come back together.
pub(super) fn jittered(pause: Duration) -> Duration {
    wait::pauses(pause, pause).next().unwrap_or(pause)
}
