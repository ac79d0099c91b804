//! The unanswered jobs of one place, and the pace at which they are tried again: pure, without clock or I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::backlog::{FIRST_PAUSE, LONGEST_PAUSE, WaitingJob, jittered, sweep};
use crate::clock::BootInstant;

/// The most jobs of one place that are tried again at once.
const WIDEST: usize = 1024;

/// Jobs of one place that wait for its answer. They share one pause.
#[derive(Debug)]
pub(super) struct Lane<J> {
    jobs: BTreeMap<(u32, Reverse<u64>), WaitingJob<J>>,
    /// The number of jobs that may be tried at once, and of those that are.
    width: usize,
    trying: usize,
    /// The instant at which the next of them may be tried, and the pause after that if it is in vain.
    not_before: BootInstant,
    pause: std::time::Duration,
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
