//! One thing to be finished in the background.

use std::sync::Arc;
use std::time::Duration;

use super::untried::Untried;
use crate::clock::{BootInstant, Clock};
use crate::driver::bound::{asked, bounded, caught};
use crate::driver::{Attempt, Backend, Cancelled, Left, SemaphoreBackend, log};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::LiveGrant;
use crate::owner::GrantId;
use crate::shutdown::UnderWay;
use crate::trace::Operation;

/// The shortest time for which a grant is left: servers count in milliseconds.
const SHORTEST: Duration = Duration::from_millis(1);

/// A release, a cancellation, the leaving of a lock or the return of permits, until the server has confirmed it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) attempt: Arc<Attempt>,
    pub(super) task: Task,
    pub(super) until: BootInstant,
    pub(super) tries: u32,
    /// Until its first try has ended, whatever the outcome.
    untried: Option<Untried>,
    operation: Operation,
    _under_way: UnderWay,
}

#[derive(Debug)]
pub(super) enum Task {
    Release,
    Cancel,
    /// Lets the grant end at this instant, under another id; once that has passed, releases it.
    Leave {
        left: GrantId,
        ends_at: BootInstant,
    },
    Shrink {
        semaphore: Arc<dyn SemaphoreBackend>,
        live: Arc<LiveGrant>,
        keep: u32,
    },
}

/// The result of one try of a job.
#[derive(Debug)]
pub(super) enum Progress {
    Done,
    /// Released; a late copy of the acquisition may still be on its way.
    Returned,
    /// Left, to be released at this instant.
    Left {
        ends_at: BootInstant,
    },
    Again,
    /// The server has refused it.
    Refused,
    /// The server has not answered.
    Unanswered,
}

impl Job {
    pub(super) fn new(
        backend_name: &'static str,
        attempt: Arc<Attempt>,
        task: Task,
        until: BootInstant,
        untried: Option<Untried>,
        under_way: UnderWay,
    ) -> Self {
        let operation = Operation::reap(backend_name, &attempt, task.name());
        Self { attempt, task, until, tries: 0, untried, operation, _under_way: under_way }
    }

    /// Tries the job once.
    pub(super) async fn attempt_once(&self, backend: &dyn Backend, clock: &dyn Clock) -> Progress {
        let phase = self.task.phase();
        let once = caught(phase, self.ask(backend, clock));
        let once = bounded(clock, self.attempt.op_timeout, phase, once);
        self.operation.run(once).await.unwrap_or_else(|error| {
            log(|| tracing::debug!(name = %self.attempt.name, %error, "clean-up will be tried again"));
            match error.kind() {
                ErrorKind::Unavailable | ErrorKind::Indeterminate => Progress::Unanswered,
                _ => Progress::Refused,
            }
        })
    }

    async fn ask(&self, backend: &dyn Backend, clock: &dyn Clock) -> Result<Progress, Error> {
        match &self.task {
            Task::Release => self.release(backend).await,
            &Task::Leave { left, ends_at } => {
                let rest = ends_at.since(clock.now());
                if rest < SHORTEST {
                    // What an earlier request has left has another id, and is not touched.
                    return self.release(backend).await;
                }
                Ok(match backend.leave(&self.attempt, left, rest).await? {
                    Left::UntilReleased => Progress::Left { ends_at },
                    Left::Done | Left::NotHeld(_) => self.returned(backend),
                })
            }
            Task::Cancel => match backend.cancel(&self.attempt).await? {
                Cancelled::Settled => Ok(Progress::Done),
                Cancelled::AskAgain => Ok(Progress::Again),
            },
            Task::Shrink { live, .. } if !live.is_held(clock) => Ok(Progress::Done),
            Task::Shrink { semaphore, keep, .. } => match semaphore.shrink(&self.attempt, *keep).await {
                Err(error) if error.kind() != ErrorKind::NotHeld => Err(error),
                _ => Ok(Progress::Done),
            },
        }
    }

    async fn release(&self, backend: &dyn Backend) -> Result<Progress, Error> {
        backend.release(&self.attempt).await?;
        Ok(self.returned(backend))
    }

    /// The attempt has no grant any more.
    fn returned(&self, backend: &dyn Backend) -> Progress {
        if asked(|| backend.is_settled(&self.attempt)) { Progress::Done } else { Progress::Returned }
    }

    /// Counts a try that has ended.
    pub(super) fn note_tried(&mut self) {
        self.tries += 1;
        self.untried = None;
    }

    /// Ends the job, and says how in its span.
    pub(super) fn ends(mut self, outcome: &'static str) {
        self.operation.note("tries", self.tries);
        self.operation.ends(outcome);
    }

    /// Gives the job up for good. The backend forgets the attempt, unless its grant is still held.
    pub(super) fn give_up(self, backend: &dyn Backend) {
        if !matches!(self.task, Task::Shrink { .. }) {
            asked(|| backend.forget(&self.attempt));
        }
        self.ends("given up");
    }
}

impl Task {
    /// Whether somebody may have the lock, or more of it, once it is done.
    pub(super) fn frees(&self) -> bool {
        !matches!(self, Self::Leave { .. })
    }

    fn phase(&self) -> Phase {
        match self {
            Self::Release | Self::Leave { .. } | Self::Shrink { .. } => Phase::Release,
            Self::Cancel => Phase::Cancel,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Cancel => "cancel",
            Self::Leave { .. } => "leave",
            Self::Shrink { .. } => "shrink",
        }
    }
}
