//! The one task per client that finishes, in the background, what callers no longer wait for: releases of dropped
//! guards, releases whose answer never came, and the undoing of acquisitions that were given up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::home::Home;
use crate::backend::{Attempt, Backend, Cancelled};
use crate::clock::{BootInstant, Clock};
use crate::sync::locked;
use crate::wait;

/// Pauses between two tries: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a cancellation is tried at least.
const QUEUED: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Release,
    Cancel,
}

#[derive(Debug)]
struct Job {
    attempt: Arc<Attempt>,
    task: Task,
    until: BootInstant,
}

/// Takes jobs from anywhere, also from `Drop` and outside a runtime.
#[derive(Debug)]
pub(crate) struct Reaper {
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    queue: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    home: Home,
}

impl Reaper {
    pub(crate) fn new(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, home: Home) -> Self {
        Self { backend, clock, queue: Mutex::new(None), home }
    }

    /// Starts the task if it does not run. Needs a runtime; without one the job waits for the TTL.
    pub(crate) fn ensure_running(&self) {
        let mut queue = locked(&self.queue);
        if queue.as_ref().is_some_and(|queue| !queue.is_closed()) {
            return;
        }
        let mut sender = None;
        let task = self.home.spawn(|| {
            let (new, receiver) = mpsc::unbounded_channel();
            sender = Some(new);
            run(self.backend.clone(), self.clock.clone(), receiver)
        });
        *queue = task.and(sender);
    }

    /// Gives the grant back in the background, until it is confirmed or its lease, which may have been extended to
    /// `deadline`, is over.
    pub(crate) fn release(&self, attempt: Arc<Attempt>, deadline: BootInstant) {
        let lasts = attempt.ttl.max(deadline.since(self.clock.now()));
        self.push(attempt, Task::Release, lasts);
    }

    /// Undoes an attempt in the background, until that is confirmed or whatever it left is over.
    pub(crate) fn cancel(&self, attempt: Arc<Attempt>) {
        // A place in a queue has no TTL of its own: its cancellation goes on for longer.
        let lasts = attempt.ttl.max(QUEUED);
        self.push(attempt, Task::Cancel, lasts);
    }

    fn push(&self, attempt: Arc<Attempt>, task: Task, lasts: Duration) {
        self.ensure_running();
        let until = self.clock.now().plus(attempt.op_timeout).plus(lasts);
        let job = Job { attempt, task, until };
        if let Some(queue) = &*locked(&self.queue)
            && queue.send(job).is_ok()
        {
            return;
        }
        tracing::debug!("no runtime to clean up in; the server's expiry will");
    }
}

/// Ends when the client is gone and every job is done.
async fn run(backend: Arc<dyn Backend>, clock: Arc<dyn Clock>, mut queue: mpsc::UnboundedReceiver<Job>) {
    let mut jobs = FuturesUnordered::new();
    let mut open = true;
    while open || !jobs.is_empty() {
        tokio::select! {
            job = queue.recv(), if open => match job {
                Some(job) => jobs.push(finish(&*backend, &*clock, job)),
                None => open = false,
            },
            Some(()) = jobs.next() => {}
        }
    }
}

async fn finish(backend: &dyn Backend, clock: &dyn Clock, job: Job) {
    let Job { attempt, task, until } = job;
    for pause in wait::pauses(FIRST_PAUSE, LONGEST_PAUSE) {
        let settled = match task {
            Task::Release => backend.release(&attempt).await.map(|_| true),
            Task::Cancel => backend.cancel(&attempt).await.map(|answer| answer == Cancelled::Settled),
        };
        match settled {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(name = %attempt.name, %error, "clean-up will be tried again"),
        }
        let now = clock.now();
        if now >= until {
            tracing::warn!(name = %attempt.name, grant = %attempt.id, "clean-up given up: the lease is over");
            return;
        }
        clock.sleep_until(now.plus(pause).min(until)).await;
    }
}
