//! One call for a slot: from the look without the lock to the end of the job.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::driver::log;
use lock_core::{Error, ErrorKind, FencingToken, Phase, RecordedGuard, WorkError};

use super::recording::may_pass;
use super::waiting::Awaited;
use super::{Attempts, Failures, Once};
use crate::outcome::{OnceError, Outcome};
use crate::progress::{Progress, Stage};
use crate::release::{after_release, release};
use crate::slot::Slot;

impl Once {
    pub(super) async fn run_if<T, J, F>(
        &self,
        slot: Slot,
        job: J,
        counts: impl FnOnce(&T) -> bool,
    ) -> Result<Outcome<T>, OnceError<T>>
    where
        J: FnOnce(FencingToken) -> F,
        F: Future<Output = T>,
    {
        self.check_ttl().map_err(OnceError::NotRun)?;
        let over = match self.seen_over(slot).await {
            // The wait may outlast that, and whoever has the lock reads the record again.
            Err(error) if !self.wait.is_zero() && may_pass(error.kind()) => None,
            over => over.map_err(OnceError::NotRun)?,
        };
        if let Some(over) = over {
            if over.is_older_than(self.lock.retention() / 2) {
                self.refresh(&over).await;
            }
            return Ok(over.skipped());
        }
        let guard = match self.lock_or_over(slot).await.map_err(OnceError::NotRun)? {
            Awaited::Lock(guard) => guard,
            Awaited::Over(over) => return Ok(over.skipped()),
            // The job may have ended meanwhile, and somebody else have the lock since.
            Awaited::Busy => match self.seen_over(slot).await {
                Ok(Some(over)) => return Ok(over.skipped()),
                _ => return Ok(Outcome::Busy(self.holder().await)),
            },
        };
        let found = match self.progress(Some(guard.record())) {
            Ok(found) => found,
            Err(error) => return Err(OnceError::NotRun(after_release(guard, error).await)),
        };
        if let Some(found) = found.filter(|found| self.is_over(found, slot)) {
            release(guard).await;
            return Ok(found.skipped());
        }
        let started = Progress::new(slot, Stage::Started, self.lock.owner());
        if let Err(error) = self.write(&guard, &started.to_bytes()).await {
            return Err(OnceError::NotStarted(after_release(guard, error).await));
        }
        self.run_started(guard, &started, job, counts).await
    }

    async fn run_started<T, J, F>(
        &self,
        guard: RecordedGuard,
        started: &Progress,
        job: J,
        counts: impl FnOnce(&T) -> bool,
    ) -> Result<Outcome<T>, OnceError<T>>
    where
        J: FnOnce(FencingToken) -> F,
        F: Future<Output = T>,
    {
        let (token, began) = (guard.fencing_token(), self.lock.clock().now());
        // The closure itself may panic, too.
        let job = AssertUnwindSafe(async { job(token).await }).catch_unwind();
        let ended = match self.while_recorded(&guard, started, job).await {
            // What has ended together with the loss has ended: that it is recorded will be refused.
            Ok(ended) | Err(WorkError { value: Some(ended), .. }) => ended,
            Err(WorkError { error, .. }) => return Err(OnceError::Dropped(error)),
        };
        let is_done = match &ended {
            Ok(value) => counts(value),
            Err(_) => self.failures == Failures::Count,
        };
        let stage = if is_done { Stage::Done } else { Stage::Failed };
        let end = Progress::new(started.slot, stage, self.lock.owner());
        let noted = self.write_end(&guard, &end).await;
        let left = self.leave_or_release(guard, self.lock.clock().now().since(began)).await;
        match ended {
            Err(panic) => {
                if let Err(error) = noted {
                    log(|| tracing::warn!(name = %self.lock.name(), %error, "the panic of a job was not recorded"));
                }
                resume_unwind(panic)
            }
            Ok(value) => match (noted, left) {
                (Ok(()), Ok(())) => Ok(Outcome::Ran(value)),
                // That it may run again is the graver of the two.
                (Err(source), _) => Err(OnceError::NotRecorded { value, source }),
                (Ok(()), Err(source)) => Err(OnceError::NotLeft { value, source }),
            },
        }
    }

    /// Runs a job while the lock is held, and writes again that it was begun, best effort, in each quarter of the retention: nobody else
    /// can have the record kept for longer. None of these calls is under way afterwards if the job has ended.
    async fn while_recorded<T>(
        &self,
        guard: &RecordedGuard,
        started: &Progress,
        job: impl Future<Output = T>,
    ) -> Result<T, WorkError<T>> {
        let clock = self.lock.clock();
        let again = || Box::pin(async { guard.write(&started.refreshed().to_bytes()).await });
        let mut under_way = None;
        let work = async {
            let mut job = pin!(job);
            loop {
                let due = clock.now().plus(self.lock.retention() / 4);
                tokio::select! {
                    biased;
                    ended = &mut job => return ended,
                    () = clock.sleep_until(due) => {}
                }
                tokio::select! {
                    biased;
                    ended = &mut job => return ended,
                    written = under_way.insert(again()) => self.tell_failure(written),
                }
                under_way = None;
            }
        };
        let ended = guard.while_held(work).await;
        if let Some(write) = under_way
            && !matches!(ended, Err(WorkError { value: None, .. }))
        {
            // Dropped, it could be carried out after the end is written.
            self.tell_failure(write.await);
        }
        ended
    }

    /// Leaves the lock of a job that has begun so long ago, or releases it if the job took long enough.
    async fn leave_or_release(&self, guard: RecordedGuard, took: Duration) -> Result<(), Error> {
        let rest = self.at_least.saturating_sub(took);
        if rest.is_zero() {
            release(guard).await;
            return Ok(());
        }
        let left = guard.leave(rest).await;
        left.map_err(|failed| {
            // A job that has panicked has no value to come back with, and one that was not recorded has a graver error.
            log(|| tracing::debug!(name = %self.lock.name(), error = %failed.error, "the lock of a job was not left"));
            failed.error
        })
    }

    /// Looks into the record, without the lock, for a progress by which this slot is over. Without the lock nobody can tell whether
    /// somebody is still at a slot that was begun.
    pub(super) async fn seen_over(&self, slot: Slot) -> Result<Option<Progress>, Error> {
        let seen = self.progress(self.lock.peek().await?.as_ref())?;
        Ok(seen.filter(|seen| self.is_over(seen, slot) && !seen.is_open(slot)))
    }

    /// Whether a job that came so far is not to be run in this slot any more, once the lock is free.
    fn is_over(&self, progress: &Progress, slot: Slot) -> bool {
        progress.slot > slot
            || progress.slot == slot
                && match progress.stage {
                    Stage::Done => true,
                    Stage::Started => self.attempts == Attempts::AtMostOnce,
                    Stage::Failed => false,
                }
    }

    /// Refuses a TTL after which the record of a holder that has crashed could be gone: nobody can have it kept for longer while its lock
    /// is there.
    fn check_ttl(&self) -> Result<(), Error> {
        let (ttl, retention) = (self.lock.lease().ttl, self.lock.retention());
        if ttl <= retention / 2 {
            return Ok(());
        }
        let what = format!("the TTL is {ttl:?}, more than half of its record's retention of {retention:?}");
        Err(Error::new(ErrorKind::InvalidArgument, Phase::Configure, what).with_name(self.lock.name()))
    }

    /// The one who is at it, if the backend can tell.
    async fn holder(&self) -> Option<lock_core::Holder> {
        self.lock.mutex().holder().await.ok()?
    }
}
