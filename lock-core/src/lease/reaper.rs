//! The one task per client that finishes, in the background, what callers no longer wait for: releases of dropped
//! guards, releases whose answer never came, permits that were given back without an answer, and the undoing of
//! acquisitions that were given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::Cell;
use super::home::Home;
use crate::backend::{Attempt, Backend, Cancelled, SemaphoreBackend};
use crate::bound::{bounded, caught};
use crate::clock::{BootInstant, Clock};
use crate::error::{Error, ErrorKind, Phase};
use crate::shutdown::{Shutdown, UnderWay};
use crate::sync::locked;
use crate::trace::Operation;
use crate::wait;

/// Pauses between two tries: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a cancellation is tried at least.
const QUEUED: Duration = Duration::from_secs(60);

/// Takes jobs from anywhere, also from `Drop` and outside a runtime.
#[derive(Debug)]
pub(crate) struct Reaper {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    shutdown: Arc<Shutdown>,
    queue: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    home: Home,
}

impl Reaper {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, shutdown: Arc<Shutdown>, home: Home) -> Self {
        Self { backend, clock, shutdown, queue: Mutex::new(None), home }
    }

    /// Starts the task if it does not run. Needs a runtime; without one the job waits for the TTL.
    pub(crate) fn ensure_running(&self) {
        let mut queue = locked(&self.queue);
        if queue.as_ref().is_some_and(|queue| !queue.is_closed()) {
            return;
        }
        let mut sender = None;
        let task = self.home.spawn(Vec::new, || {
            let (new, receiver) = mpsc::unbounded_channel();
            sender = Some(new);
            run(self.backend.clone(), self.clock.clone(), receiver)
        });
        *queue = task.and(sender);
    }

    /// Gives the grant back in the background, until it is confirmed or its lease, which may have been extended to
    /// `deadline`, is over, and with it the entry.
    pub(crate) fn release(&self, attempt: Arc<Attempt>, deadline: BootInstant) {
        let lasts = attempt.ttl.max(deadline.since(self.clock.now()));
        let until = gone_by(&*self.backend, &attempt, self.clock.now().plus(lasts));
        self.push(attempt, Task::Release, until);
    }

    /// Undoes an attempt in the background, until that is confirmed or whatever it left is over.
    pub(crate) fn cancel(&self, attempt: Arc<Attempt>) {
        let until = cancelled_by(&*self.backend, &attempt, self.clock.now());
        self.push(attempt, Task::Cancel, until);
    }

    /// After the end of a grant: sees to it that no late copy of its request takes the lock again.
    pub(crate) fn ended(&self, attempt: &Arc<Attempt>) {
        if !self.backend.is_settled(attempt) {
            self.cancel(attempt.clone());
        }
    }

    /// Leaves the grant `keep` permits in the background, until that is confirmed or the grant has ended.
    pub(crate) fn shrink(&self, semaphore: Arc<dyn SemaphoreBackend>, cell: Arc<Cell>, keep: u32) {
        self.push(cell.attempt.clone(), Task::Shrink { semaphore, cell, keep }, BootInstant::FAR_FUTURE);
    }

    fn push(&self, attempt: Arc<Attempt>, task: Task, until: BootInstant) {
        self.ensure_running();
        let ended = !matches!(task, Task::Shrink { .. });
        let job = Job { attempt: attempt.clone(), task, until, _under_way: self.shutdown.track() };
        if let Some(queue) = &*locked(&self.queue)
            && queue.send(job).is_ok()
        {
            return;
        }
        tracing::debug!("no runtime to clean up in; the server's expiry will");
        if ended {
            self.backend.forget(&attempt);
        }
    }
}

/// Until when a cancellation is tried. A place in a queue has no TTL of its own: it goes on for longer.
fn cancelled_by(backend: &dyn Backend, attempt: &Attempt, now: BootInstant) -> BootInstant {
    gone_by(backend, attempt, now.plus(attempt.ttl.max(QUEUED)))
}

/// When nothing is left of what a lease that ends at this instant has at the server, whoever takes it back.
fn gone_by(backend: &dyn Backend, attempt: &Attempt, lease_ends: BootInstant) -> BootInstant {
    lease_ends.plus(attempt.op_timeout).plus(backend.outlasts_lease())
}

/// Ends when the client is gone and every job is done.
async fn run(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let mut jobs = FuturesUnordered::new();
    let mut open = true;
    while open || !jobs.is_empty() {
        tokio::select! {
            job = queue.recv(), if open => match job {
                Some(job) => jobs.push(job.finish(&*backend, &*clock)),
                None => open = false,
            },
            Some(()) = jobs.next() => {}
        }
    }
}

#[derive(Debug)]
struct Job {
    attempt: Arc<Attempt>,
    task: Task,
    until: BootInstant,
    _under_way: UnderWay,
}

#[derive(Debug)]
enum Task {
    Release,
    Cancel,
    Shrink { semaphore: Arc<dyn SemaphoreBackend>, cell: Arc<Cell>, keep: u32 },
}

/// What one try of a job has come to.
enum Progress {
    Done,
    /// Given back; a late copy of the acquisition may still be on its way.
    Returned,
    Again,
}

impl Job {
    async fn finish(mut self, backend: &dyn Backend, clock: &dyn Clock) {
        let mut operation = Operation::reap(backend.name(), &self.attempt, self.task.name());
        let span = operation.span();
        let (tries, outcome) = self.repeat(backend, clock).instrument(span).await;
        operation.note("tries", tries);
        operation.ends(outcome);
    }

    /// Tries until it is done or too late, with growing pauses; says how often, and what came of it.
    async fn repeat(&mut self, backend: &dyn Backend, clock: &dyn Clock) -> (u32, &'static str) {
        let mut tries = 0;
        for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
            tries += 1;
            let once = caught(self.task.phase(), self.attempt_once(backend, clock));
            match bounded(clock, self.attempt.op_timeout, self.task.phase(), once).await {
                Ok(Progress::Done) => return (tries, "done"),
                Ok(Progress::Again) => {}
                Ok(Progress::Returned) => {
                    self.task = Task::Cancel;
                    self.until = cancelled_by(backend, &self.attempt, clock.now());
                }
                Err(error) => tracing::debug!(name = %self.attempt.name, %error, "clean-up will be tried again"),
            }
            let now = clock.now();
            if now < self.until {
                clock.sleep_until(now.plus(pause).min(self.until)).await;
            } else if backend.may_remain(&self.attempt) {
                clock.sleep_until(now.plus(LONGEST_PAUSE)).await;
            } else {
                break;
            }
        }
        backend.forget(&self.attempt);
        let Attempt { name, id, .. } = &*self.attempt;
        tracing::warn!(%name, grant = %id, "clean-up given up: the lease is over");
        (tries, "given up")
    }

    async fn attempt_once(&self, backend: &dyn Backend, clock: &dyn Clock) -> Result<Progress, Error> {
        match &self.task {
            Task::Release => {
                backend.release(&self.attempt).await?;
                Ok(if backend.is_settled(&self.attempt) { Progress::Done } else { Progress::Returned })
            }
            Task::Cancel => match backend.cancel(&self.attempt).await? {
                Cancelled::Settled => Ok(Progress::Done),
                Cancelled::AskAgain => Ok(Progress::Again),
            },
            Task::Shrink { cell, .. } if !cell.is_held(clock) => Ok(Progress::Done),
            Task::Shrink { semaphore, keep, .. } => match semaphore.shrink(&self.attempt, *keep).await {
                Err(error) if error.kind() != ErrorKind::NotHeld => Err(error),
                _ => Ok(Progress::Done),
            },
        }
    }
}

impl Task {
    fn phase(&self) -> Phase {
        match self {
            Self::Release | Self::Shrink { .. } => Phase::Release,
            Self::Cancel => Phase::Cancel,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Cancel => "cancel",
            Self::Shrink { .. } => "shrink",
        }
    }
}
