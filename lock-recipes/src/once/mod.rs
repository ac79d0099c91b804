//! A job that runs once per slot.

mod call;
mod policy;
mod recording;
#[cfg(test)]
mod tests;
mod waiting;

use std::future::Future;
use std::time::Duration;

use lock_core::{Error, ErrorKind, FencingToken, Guarantee, Phase, RecordedMutex};

pub use self::policy::{Attempts, Failures};
use crate::outcome::{OnceError, Outcome};
use crate::release::{after_release, release};
use crate::slot::Slot;

/// A job that runs once per [slot](Slot), whoever asks for it, and however often: a scheduled job of several processes.
///
/// A plain mutex does not do that: a job that takes 10 ms is over, and its lock free, when the next process's timer goes off.
/// Here the latest slot is written into the [record](lock_core::RecordedMutex) beside the lock, before the job begins and when it
/// has ended. An earlier slot, and the latest one when it is done, is skipped after one request and without the lock. Whether somebody
/// is at the latest one only the lock tells: a call for it takes the lock, and is [busy](Outcome::Busy) if it cannot have it. A call that
/// [waits](Once::with_wait) for the lock reads the record again meanwhile, and is skipped as soon as that says so: at the latest 2 s and one
/// round trip after the job has ended, however many wait. Once the lock is free, the slot is skipped or run again, after a crash by [`Attempts`] and after a failure by [`Failures`].
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
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?);
    /// assert_eq!(once.run(7, |_token| async { "sent" }).await?, Outcome::Ran("sent"));
    /// # Ok(()) }
    /// ```
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
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::{Attempts, Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?).with_attempts(Attempts::AtLeastOnce);
    /// let hangs = once.run(7, |_token| std::future::pending::<()>());
    /// let _ = tokio::time::timeout(Duration::from_millis(10), hangs).await; // dropped while the job runs
    /// assert_eq!(once.run(7, |_token| async { "sent" }).await?, Outcome::Ran("sent")); // it is run again
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_attempts(mut self, attempts: Attempts) -> Self {
        self.attempts = attempts;
        self
    }

    /// Sets what becomes of a slot whose job has failed or panicked.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::{Failures, Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?).with_failures(Failures::RunAgain);
    /// once.try_run(7, |_token| async { Err::<(), _>("no paper") }).await?;
    /// let again = once.try_run(7, |_token| async { Ok::<_, &str>(()) }).await?;
    /// assert_eq!(again, Outcome::Ran(Ok(())));
    /// # Ok(()) }
    /// ```
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
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let lock = locks.recorded("invoices")?;
    /// let at_it = lock.lock().await?;
    /// let once = Once::new(lock).with_wait(Duration::from_secs(20));
    /// let run = tokio::spawn(async move { once.run(7, |_token| async { "sent" }).await });
    /// tokio::task::yield_now().await; // the run has begun to wait
    /// at_it.release().await?;
    /// assert_eq!(run.await.unwrap()?, Outcome::Ran("sent"));
    /// # Ok(()) }
    /// ```
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
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?);
    /// let first = once.run(7, |token| async move { token.as_u64() }).await?; // the token is for what it writes to
    /// assert!(matches!(first, Outcome::Ran(_)));
    /// let second = once.run(7, |_token| async { 0 }).await?; // also in another process
    /// assert!(matches!(second, Outcome::Skipped { .. }));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`OnceError`], by how far the job came. A value whose end could not be recorded, or whose lock not be left, comes back in it.
    ///
    /// # Panics
    /// If the job does, after that was recorded or, if it cannot be, logged.
    ///
    /// # Cancel safety
    /// A dropped call drops the job. A slot that was begun by then counts as begun by somebody who has gone. A call that is kept without being
    /// polled (in a `select!` loop, say) keeps the lock for as long as it is kept.
    pub async fn run<T, J, F>(&self, slot: impl Into<Slot>, job: J) -> Result<Outcome<T>, OnceError<T>>
    where
        J: FnOnce(FencingToken) -> F,
        F: Future<Output = T>,
    {
        self.run_if(slot.into(), job, |_| true).await
    }

    /// Runs a job that may fail, as [`run`](Once::run); whether a failure counts as done is [by choice](Failures).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_recipes::{Once, Outcome};
    ///
    /// let once = Once::new(locks.recorded("invoices")?);
    /// let failed: Outcome<Result<(), &str>> = once.try_run(7, |_token| async { Err("no paper") }).await?;
    /// assert_eq!(failed, Outcome::Ran(Err("no paper")));
    /// let again = once.try_run(7, |_token| async { Ok::<_, &str>(()) }).await?;
    /// assert!(matches!(again, Outcome::Skipped { .. })); // a failure counts as done, unless chosen otherwise
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`OnceError`], by how far the job came. The job's own error is a value.
    ///
    /// # Panics
    /// If the job does, after that was recorded or, if it cannot be, logged.
    ///
    /// # Cancel safety
    /// A dropped call drops the job. A slot that was begun by then counts as begun by somebody who has gone. A call that is kept without being
    /// polled (in a `select!` loop, say) keeps the lock for as long as it is kept.
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
    /// Those of [`RecordedMutex::try_lock_for`] and [`RecordedGuard::write`](lock_core::RecordedGuard::write).
    /// [`ErrorKind::Indeterminate`]: the slots may be forgotten, and asking again is sound.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped. One that is kept without being polled (in a `select!` loop, say) may keep the lock:
    /// for up to one TTL, on ZooKeeper for as long as its client lives.
    pub async fn forget(&self) -> Result<bool, Error> {
        let Some(guard) = self.lock.try_lock_for(self.wait).await? else { return Ok(false) };
        if let Err(error) = guard.while_polled(self.write(&guard, &[])).await {
            return Err(after_release(guard, error).await);
        }
        release(guard).await;
        Ok(true)
    }
}
