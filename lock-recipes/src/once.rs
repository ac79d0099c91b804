//! A job that runs once per slot.

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::driver::log;
use lock_core::{Error, ErrorKind, FencingToken, Guarantee, Phase, Record, RecordedGuard, RecordedMutex, WorkError};

use crate::outcome::{OnceError, Outcome};
use crate::progress::{Progress, Stage};
use crate::release::{after_release, release, unknown};
use crate::slot::Slot;

/// The pauses before a record is written again that may not have been written.
const PAUSES: [Duration; 3] = [Duration::from_millis(50), Duration::from_millis(200), Duration::from_secs(1)];

/// The pause before each further try, where there are more.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Tells of a write that failed at last, after a try of which no answer came.
const MAY_BE_WRITTEN: &str = "the last write failed, and an earlier one without an answer may have succeeded";

/// The treatment of a slot that was begun by somebody who has gone without saying how it ended: a process that crashed, a task
/// that was dropped, a holder that was paused for longer than its lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempts {
    /// Skips it: a job runs at most once per slot.
    #[default]
    AtMostOnce,
    /// Runs it again: a job that is asked for often enough runs at least once per slot, unless a later slot was begun by then. A
    /// process whose clock is ahead by more than a period begins slots later than those of the others, which are then skipped.
    AtLeastOnce,
}

/// The treatment of a slot whose job has failed or panicked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failures {
    /// Counts as done: the job is not run again.
    #[default]
    Count,
    /// The next caller that asks for the slot runs the job again.
    RunAgain,
}

/// A job that runs once per [slot](Slot), whoever asks for it, and however often: a scheduled job of several processes.
///
/// A plain mutex does not do that: a job that takes 10 ms is over, and its lock free, when the next process's timer goes off.
/// Here the latest slot is written into the [record](lock_core::RecordedMutex) beside the lock, before the job begins and when it
/// has ended. An earlier slot, and the latest one when it is done, is skipped after one request and without the lock. Whether somebody
/// is at the latest one only the lock tells: a call for it takes the lock, and is [busy](Outcome::Busy) if it cannot have it. Once the
/// lock is free, the slot is skipped or run again, after a crash by [`Attempts`] and after a failure by [`Failures`].
///
/// # What it promises
/// At most once per slot, or at least once, [by choice](Attempts); never exactly once. It promises as much as the backend does of its
/// records: see what its guarantees say of [`RecordAcrossRestart`](lock_core::Guarantee::RecordAcrossRestart), on Redis that it depends on
/// how the server writes its data down. A record is kept for its [retention](RecordedMutex::with_retention), one whose
/// job is still run, or that is asked for meanwhile, for longer: a job whose slots are further apart than half of that has to be asked for
/// in between. Slots are compared with each other, never with a clock, so the clocks of the processes may differ; only how old a record is, is told by clocks, so the retention has to be far longer
/// than they differ. A holder that is paused past its lease can record nothing
/// afterwards; what its job does outside is stopped only by the fencing token that it is given. One process that names a slot far in the
/// future, by a wrong clock, has all slots up to that one skipped: [`forget`](Once::forget) begins anew.
///
/// The time of a call, beside the job's, is bounded by parts: the request that reads takes one operation timeout at most; if the server
/// did not answer it, a call with a [wait](Once::with_wait) goes on all the same; the lock takes the wait and one operation timeout, and releasing it one; a
/// call that finds somebody at it reads again and asks who that is, in one each; the write before the job is sent four times at most, with
/// 1.25 s of pauses in between, for as long as the lock is held; the write behind the job is sent likewise, and then each second until one
/// TTL has passed. A job that ends while its beginning is written again waits for that, one operation timeout at most. A skip that
/// refreshes an old record takes and releases the lock for that.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = lock_core::MemoryLocks::new();
/// use lock_recipes::{Attempts, Failures, Once, Outcome};
///
/// let once = Once::new(locks.recorded("invoices")?).with_attempts(Attempts::AtLeastOnce).with_failures(Failures::RunAgain);
/// let failed: Outcome<Result<u32, &str>> = once.try_run(7, |_token| async { Err("no paper") }).await?;
/// assert_eq!(failed.ran(), Some(Err("no paper")));
/// let again = once.try_run(7, |_token| async { Ok::<_, &str>(12) }).await?;
/// assert_eq!(again.ran(), Some(Ok(12)));
/// # Ok(()) }
/// ```
///
/// # Source
/// A period's lock that is not freed early is what gocron, ShedLock (`lockAtLeastFor`) and node-cron recommend; comparing slots
/// instead of durations is what their issues ask for.
#[derive(Debug, Clone)]
pub struct Once {
    lock: RecordedMutex,
    attempts: Attempts,
    failures: Failures,
    wait: Duration,
    at_least: Duration,
}

impl Once {
    /// The job of this lock's name. The lock's lease is renewed while the job runs. Its TTL may be half of the record's
    /// [retention](RecordedMutex::with_retention) at most: of a holder that has crashed, the lock is not to outlast what is recorded.
    #[must_use]
    pub fn new(lock: RecordedMutex) -> Self {
        Self {
            lock,
            attempts: Attempts::default(),
            failures: Failures::default(),
            wait: Duration::ZERO,
            at_least: Duration::ZERO,
        }
    }

    /// Sets what becomes of a slot that was begun by somebody who has gone.
    #[must_use]
    pub fn with_attempts(mut self, attempts: Attempts) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets what becomes of a slot whose job has failed or panicked.
    #[must_use]
    pub fn with_failures(mut self, failures: Failures) -> Self {
        self.failures = failures;
        self
    }

    /// Sets how long to wait for another process that runs the job: not at all by default. A slot whose holder has crashed is run by the
    /// next caller after the end of its lease. If slots come more often, wait for one TTL and what the backend keeps beyond it, so that
    /// none is skipped. On memcached that is 6 s more. On ZooKeeper the session's timeout and one tick replace the TTL. Add one operation
    /// timeout everywhere.
    ///
    /// A server that does not answer is waited for likewise, for the client's [patience](lock_core::ClientOptions::patience) at most.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Keeps the lock for this long from the beginning of each job that runs here, by the server's clock: not at all beyond the job by
    /// default. A job that ends sooner leaves its lock behind ([`leave`](lock_core::RecordedGuard::leave)), whatever it has come to, and
    /// whoever asks for another slot meanwhile finds it busy; one that takes longer releases it when it ends. A job whose lock is lost, or
    /// whose call is dropped, leaves nothing. If it is not confirmed that the lock was left, the value comes back in
    /// [`OnceError::NotLeft`].
    ///
    /// On ZooKeeper the lock is left for as long as the process has its session, and not longer
    /// ([`Guarantee::Leave`]).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("mail")?).with_at_least(Duration::from_secs(60))?;
    /// assert_eq!(once.run(1, |_token| async { "sent" }).await?, Outcome::Ran("sent"));
    /// let next = once.run(2, |_token| async { "sent" }).await?;
    /// assert!(matches!(next, Outcome::Busy(_))); // for a minute
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where locks cannot be left; [`ErrorKind::InvalidArgument`] for no time, and for more than 24 h, than
    /// the longest lease of the configuration or than half of the record's [retention](RecordedMutex::with_retention): nobody can have a
    /// record kept for longer while its lock is left.
    pub fn with_at_least(mut self, time: Duration) -> Result<Self, Error> {
        self.lock.mutex().check_leave(time)?;
        let retention = self.lock.retention();
        if time > retention / 2 {
            let what = format!(
                "a lock is to be kept for {time:?} at least, more than half of its record's retention of {retention:?}"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, Phase::Configure, what).with_name(self.lock.name()));
        }
        self.at_least = time;
        Ok(self)
    }

    /// Refuses a configuration that does not keep what is recorded over these events, such as
    /// [`RecordAcrossRestart`](Guarantee::RecordAcrossRestart). A promise with a reservation suffices; the reservation is told by
    /// [`RecordedMutex::guarantees`].
    ///
    /// # Examples
    /// ```
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::{ErrorKind, Guarantee};
    /// use lock_recipes::Once;
    ///
    /// let once = Once::new(locks.recorded("invoices")?);
    /// let refused = once.with_required(&[Guarantee::RecordAcrossRestart]).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::Unsupported); // the store in memory ends with its process
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], with everything that is not promised.
    pub fn with_required(self, wanted: &[Guarantee]) -> Result<Self, Error> {
        let required = self.lock.guarantees().require_with_reservations(wanted);
        required.map_err(|error| error.with_name(self.lock.name()))?;
        Ok(self)
    }

    /// Runs the job, unless this slot or a later one was begun before. The job is given the fencing token of its lock, and is dropped
    /// at its next await point if the lock is lost; what it has spawned is not.
    ///
    /// # Errors
    /// [`OnceError`], by how far the job came. A value whose end could not be recorded, or whose lock not be left, comes back in it.
    ///
    /// # Panics
    /// If the job does, after that was recorded or, if it cannot be, logged.
    ///
    /// # Cancel safety
    /// A dropped call drops the job. A slot that was begun by then counts as begun by somebody who has gone.
    pub async fn run<T, J, F>(&self, slot: impl Into<Slot>, job: J) -> Result<Outcome<T>, OnceError<T>>
    where
        J: FnOnce(FencingToken) -> F,
        F: Future<Output = T>,
    {
        self.run_if(slot.into(), job, |_| true).await
    }

    /// Runs a job that may fail, as [`run`](Once::run); whether a failure counts as done is [by choice](Failures).
    ///
    /// # Errors
    /// [`OnceError`], by how far the job came. The job's own error is a value.
    ///
    /// # Panics
    /// If the job does, after that was recorded or, if it cannot be, logged.
    ///
    /// # Cancel safety
    /// A dropped call drops the job. A slot that was begun by then counts as begun by somebody who has gone.
    pub async fn try_run<T, E, J, F>(
        &self,
        slot: impl Into<Slot>,
        job: J,
    ) -> Result<Outcome<Result<T, E>>, OnceError<Result<T, E>>>
    where
        J: FnOnce(FencingToken) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let failures_count = self.failures == Failures::Count;
        self.run_if(slot.into(), job, |value| value.is_ok() || failures_count).await
    }

    /// Forgets the slots that were begun: whichever is asked for next is run, unless it is asked for while another one is run. For an
    /// operator, after a slot was begun that is far in the future. Whether it is done; `false` if somebody has the lock: is at it, refreshes
    /// the record, or has [left](Once::with_at_least) the lock. On several ZooKeeper servers a process whose server is behind goes on to skip
    /// for some moments.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?);
    /// once.run(209_912_31, |_token| async {}).await?; // by a wrong clock
    /// assert!(matches!(once.run(202_612_01, |_token| async {}).await?, Outcome::Skipped { .. }));
    /// assert!(once.forget().await?);
    /// assert_eq!(once.run(202_612_01, |_token| async {}).await?, Outcome::Ran(()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`RecordedMutex::try_lock_for`] and [`RecordedGuard::write`].
    /// [`ErrorKind::Indeterminate`]: the slots may be forgotten, and asking again is sound.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn forget(&self) -> Result<bool, Error> {
        let Some(guard) = self.lock.try_lock_for(self.wait).await? else { return Ok(false) };
        if let Err(error) = self.write(&guard, &[]).await {
            return Err(after_release(guard, error).await);
        }
        release(guard).await;
        Ok(true)
    }

    async fn run_if<T, J, F>(
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
        let guard = match self.lock.try_lock_for(self.wait).await {
            Ok(Some(guard)) => guard,
            // The job may have ended meanwhile, and somebody else have the lock since.
            Ok(None) => match self.seen_over(slot).await {
                Ok(Some(over)) => return Ok(over.skipped()),
                _ => return Ok(Outcome::Busy(self.holder().await)),
            },
            Err(error) => return Err(OnceError::NotRun(error)),
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
    async fn seen_over(&self, slot: Slot) -> Result<Option<Progress>, Error> {
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

    /// Writes the record, again if that is unknown or no server could be asked, as long as the lock is held and a few times.
    async fn write(&self, guard: &RecordedGuard, data: &[u8]) -> Result<(), Error> {
        self.write_after(guard, data, PAUSES).await
    }

    /// Writes how a job ended, again for as long as the lock is held, and for one TTL at most: a lock may be renewed although no record is
    /// taken down.
    async fn write_end(&self, guard: &RecordedGuard, end: &Progress) -> Result<(), Error> {
        let clock = self.lock.clock();
        let until = clock.now().plus(self.lock.lease().ttl);
        let more =
            std::iter::from_fn(|| Some(until.since(clock.now()).min(LONG_PAUSE)).filter(|pause| !pause.is_zero()));
        self.write_after(guard, &end.to_bytes(), PAUSES.into_iter().chain(more)).await
    }

    /// Writes the record, again after each of these pauses if that is unknown or no server could be asked, as long as the lock is held: only
    /// this holder writes. The outcome is unknown if that of any try was.
    async fn write_after(
        &self,
        guard: &RecordedGuard,
        data: &[u8],
        pauses: impl IntoIterator<Item = Duration>,
    ) -> Result<(), Error> {
        let (clock, mut pauses, mut may_be_written) = (self.lock.clock(), pauses.into_iter(), false);
        loop {
            let Err(error) = guard.write(data).await else { return Ok(()) };
            let failed = |error| if may_be_written { unknown(error, MAY_BE_WRITTEN) } else { error };
            if !may_pass(error.kind()) || !guard.is_held() {
                return Err(failed(error));
            }
            let Some(pause) = pauses.next() else { return Err(failed(error)) };
            clock.sleep_until(clock.now().plus(pause)).await;
            if !guard.is_held() {
                return Err(failed(error));
            }
            log(|| tracing::debug!(name = %self.lock.name(), %error, "a record may not be written; writing it again"));
            may_be_written |= !error.is_definite();
        }
    }

    /// Reads what a record beside this lock says.
    fn progress(&self, record: Option<&Record>) -> Result<Option<Progress>, Error> {
        Progress::of(record, self.lock.name())
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

    /// Has a record that is still asked for kept for longer, unless somebody has the lock or it has changed: best effort, once in half
    /// of its retention. Whoever wants another slot meanwhile finds it busy.
    async fn refresh(&self, seen: &Progress) {
        let Ok(Some(guard)) = self.lock.try_lock().await else { return };
        if self.progress(Some(guard.record())).is_ok_and(|found| found.as_ref() == Some(seen)) {
            self.tell_failure(guard.write(&seen.refreshed().to_bytes()).await);
        }
        release(guard).await;
    }

    /// Tells the log of a record that is not kept for longer.
    fn tell_failure(&self, refreshed: Result<(), Error>) {
        if let Err(error) = refreshed {
            log(|| tracing::debug!(name = %self.lock.name(), %error, "the record could not be refreshed"));
        }
    }

    /// The one who is at it, if the backend can tell.
    async fn holder(&self) -> Option<lock_core::Holder> {
        self.lock.mutex().inspect().await.ok()?.holders.into_iter().next()
    }
}

/// Whether the same request may succeed soon: no server could be asked, or its answer is not known.
fn may_pass(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Indeterminate | ErrorKind::Unavailable)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use lock_core::clock::VirtualClock;
    use lock_core::memory::{MemoryConfig, MemoryStore};
    use lock_core::{ClientOptions, LeaseOptions, MemoryLocks};

    use super::*;

    const TTL: Duration = Duration::from_secs(3600);
    const RETENTION: Duration = Duration::from_secs(2 * 3600);

    fn once(store: &MemoryStore) -> Once {
        once_for(store, TTL)
    }

    fn once_for(store: &MemoryStore, ttl: Duration) -> Once {
        let mut client = ClientOptions::default();
        client.lease = LeaseOptions::new(ttl);
        let locks: MemoryLocks = store.connect_with(MemoryConfig::default().with_client(client)).unwrap();
        Once::new(locks.recorded("job").unwrap().with_retention(RETENTION))
    }

    /// Lets a future do what it can at each second of this time; its output, if it has ended.
    async fn during<F: Future>(clock: &VirtualClock, time: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
        for second in 0..=time.as_secs() {
            if second > 0 {
                clock.advance(Duration::from_secs(1));
            }
            for _ in 0..10 {
                if let Poll::Ready(output) = futures_util::poll!(future.as_mut()) {
                    return Some(output);
                }
                tokio::task::yield_now().await;
            }
        }
        None
    }

    /// Nobody else can refresh the record while the job has the lock.
    #[tokio::test]
    async fn a_slot_whose_job_ran_for_longer_than_its_record_is_kept_has_been_begun() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (one, other) = (once(&store), once(&store));
        {
            let mut run = pin!(one.run_if(1.into(), |_| std::future::pending::<()>(), |()| true));
            assert!(during(&clock, RETENTION + Duration::from_secs(1), run.as_mut()).await.is_none());
        }
        let again = other.with_wait(TTL).run(1, |_| async {}).await.unwrap();
        assert!(matches!(again, Outcome::Skipped { slot, .. } if slot == Slot::from(1)), "{again:?}");
    }

    /// Its beginning is being written again at that moment, and comes late.
    #[tokio::test]
    async fn the_end_of_a_job_is_the_last_that_is_written() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (one, second) = (once(&store), Duration::from_secs(1));
        let (end, ended) = tokio::sync::oneshot::channel();
        let mut run = pin!(one.run_if(1.into(), |_| ended, |_| true));
        assert!(during(&clock, RETENTION / 4 - second, run.as_mut()).await.is_none());
        let begun = one.lock.read().await.unwrap().unwrap().data;
        assert!(!String::from_utf8(begun).unwrap().contains("refreshed"), "a short job's is written once");
        store.set_delay(second * 2, second * 2, 0);
        assert!(during(&clock, second, run.as_mut()).await.is_none());
        store.set_delay(Duration::ZERO, Duration::ZERO, 0);
        end.send("receipt").unwrap();
        assert!(during(&clock, second, run.as_mut()).await.is_none(), "what is under way may come after the end");
        let outcome = during(&clock, second, run.as_mut()).await.expect("it should have ended").unwrap();
        assert_eq!(outcome, Outcome::Ran(Ok("receipt")));
        let progress = one.progress(one.lock.read().await.unwrap().as_ref()).unwrap().unwrap();
        assert_eq!(progress.stage, Stage::Done);
    }

    /// The server refuses for a while.
    #[tokio::test]
    async fn a_beginning_that_could_not_be_written_again_is_so_at_the_next_time() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (one, other) = (once(&store), once(&store));
        {
            let mut run = pin!(one.run_if(1.into(), |_| std::future::pending::<()>(), |()| true));
            assert!(during(&clock, Duration::ZERO, run.as_mut()).await.is_none());
            store.set_reachable(false);
            assert!(during(&clock, RETENTION / 3, run.as_mut()).await.is_none());
            store.set_reachable(true);
            assert!(during(&clock, RETENTION, run.as_mut()).await.is_none());
        }
        let again = other.with_wait(TTL).run(1, |_| async {}).await.unwrap();
        assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
    }

    /// A server that starts anew refuses at once for as long.
    #[tokio::test]
    async fn an_end_is_written_again_for_as_long_as_the_lock_is_held() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (second, ttl) = (Duration::from_secs(1), Duration::from_secs(10));
        let (one, other) = (once_for(&store, ttl), once_for(&store, ttl));
        let job = async |_| {
            store.set_reachable(false);
            "receipt"
        };
        let mut run = pin!(one.run_if(1.into(), job, |_| true));
        let early = during(&clock, second * 3, run.as_mut()).await;
        assert!(early.is_none(), "its lock is held: {early:?}");
        store.set_reachable(true);
        let outcome = during(&clock, second * 2, run.as_mut()).await.expect("it should have ended").unwrap();
        assert_eq!(outcome, Outcome::Ran("receipt"));
        let least = other.with_attempts(Attempts::AtLeastOnce);
        let again = least.run(1, |_| async { "twice" }).await.unwrap();
        assert!(matches!(again, Outcome::Skipped { .. }), "{again:?}");
    }

    #[tokio::test]
    async fn an_end_that_is_never_written_comes_back_when_the_lock_is_lost() {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let ttl = Duration::from_secs(10);
        let one = once_for(&store, ttl);
        let job = async |_| {
            store.set_reachable(false);
            "receipt"
        };
        let mut run = pin!(one.run_if(1.into(), job, |_| true));
        let outcome = during(&clock, ttl * 2, run.as_mut()).await.expect("its lock is lost by then");
        let error = outcome.unwrap_err();
        assert!(matches!(&error, OnceError::NotRecorded { source, .. } if source.kind() == ErrorKind::Unavailable));
        assert_eq!(error.into_value(), Some("receipt"));
    }
}
