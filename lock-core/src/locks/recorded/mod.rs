//! The mutex with a record beside it.

mod guard;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::guard::RecordedGuard;
use crate::acquire::{CANCEL_GRACE, Core};
use crate::clock::{BootInstant, Clock};
use crate::driver::bound::before;
use crate::driver::wait::pauses;
use crate::driver::{Guarantee, Record, RecordBackend, RecordWrite, Support};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::Attended;
use crate::lease::keeper::Keeper;
use crate::locks::{FencedGuard, FencedMutexGuard, Mutex};
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::Owner;

/// The pauses before a record is stamped again, before jitter: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A mutex with a record beside it: up to [`Record::MAX_BYTES`] that only the latest holder can write, and everybody can read.
///
/// The record outlives its holders. Each new holder first stamps it with its fencing token, in one request more than the mutex
/// takes; from then on nobody with an older token can write it, however long it was paused. How well it is kept is
/// [`Guarantee::RecordAcrossRestart`] and [`Guarantee::RecordAcrossFailover`]; a record that nobody has touched for its
/// [retention](RecordedMutex::with_retention) may be gone.
///
/// The lock is the mutex of that name. A holder that takes it as a plain mutex excludes holders of this one, and leaves the record
/// unstamped. Earlier holders still cannot write: a write is refused once its grant is gone. memcached cannot check the grant in the step
/// of the write: there a write sent while the lock was held may be carried out when a plain holder has it (see [`Guarantee::Record`]). It
/// cannot where every holder takes the lock with its record.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let report = locks.recorded("report")?;
/// let guard = report.lock().await?;
/// assert!(guard.record().data.is_empty()); // nothing was written yet
/// guard.write(b"up to line 17").await?;
/// guard.release().await?;
///
/// let next = report.lock().await?;
/// assert_eq!(next.record().data, b"up to line 17");
/// assert_eq!(report.read().await?.unwrap().term, next.fencing_token());
/// next.release().await
/// # }
/// ```
#[derive(Clone)]
pub struct RecordedMutex {
    core: Arc<Core>,
    backend: Arc<dyn RecordBackend>,
    mutex: Mutex,
    retention: Duration,
}

impl RecordedMutex {
    pub(crate) fn new(core: &Arc<Core>, backend: &Arc<dyn RecordBackend>, name: LockName) -> Result<Self, Error> {
        let unsupported = |what| core.named(Error::new(ErrorKind::Unsupported, Phase::Configure, what), &name);
        if name.is_key() {
            return Err(unsupported("there is no record beside a key that is shared with other libraries"));
        }
        if backend.guarantees().of(Guarantee::Record) == Support::No {
            return Err(unsupported("this configuration keeps no records"));
        }
        core.require_fencing(&name)?;
        let mutex = Mutex::new(core.clone(), backend.clone(), name);
        Ok(Self { core: core.clone(), backend: backend.clone(), mutex, retention: Record::LONGEST_RETENTION })
    }

    /// Sets the lease options of the guards that are taken through this handle.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    /// use lock_core::LeaseOptions;
    ///
    /// let lease = LeaseOptions::new(Duration::from_secs(30)).with_max_hold(Duration::from_secs(3600));
    /// let guard = locks.recorded("report")?.with_lease(lease).lock().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.mutex = self.mutex.with_lease(lease);
        self
    }

    /// Sets the TTL of the guards that are taken through this handle.
    ///
    /// The client's [`renew_every`](LeaseOptions::renew_every), if it has one, stays: one of more than half of the new TTL is refused when
    /// the lock is taken. [`with_lease`](RecordedMutex::with_lease) sets both.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let ttl = std::time::Duration::from_secs(60);
    /// let guard = locks.recorded("report")?.with_ttl(ttl).lock().await?;
    /// assert!(guard.remaining() > ttl / 2);
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.with_ttl(ttl);
        self
    }

    /// Sets the time for which the record is kept after it was last stamped or written, at least: between a minute and
    /// [`Record::LONGEST_RETENTION`], which is the default.
    ///
    /// # Examples
    /// ```
    /// # let locks = lock_core::MemoryLocks::new();
    /// let day = std::time::Duration::from_secs(24 * 60 * 60);
    /// let report = locks.recorded("report")?.with_retention(day);
    /// assert_eq!(report.retention(), day);
    /// # Ok::<(), lock_core::Error>(())
    /// ```
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The lease options of the guards that are taken through this handle.
    #[must_use]
    pub fn lease(&self) -> LeaseOptions {
        self.mutex.lease()
    }

    /// The time for which the record is kept after it was last stamped or written, at least.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.mutex.name()
    }

    /// The owner that its grants carry.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.core.owner
    }

    /// The clock by which its leases run.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.keeper.clock
    }

    /// The mutex without the record.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// let seen = report.mutex().inspect().await?;
    /// assert_eq!(seen.holders[0].grant, Some(guard.grant_id()));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// Returns the promises of the client's backend, as it is configured.
    #[must_use]
    pub fn guarantees(&self) -> crate::Guarantees {
        self.backend.guarantees()
    }

    /// Reads the record, without the lock; `None` if there is none.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// assert!(report.read().await?.is_none()); // nobody has had the lock yet
    /// let guard = report.lock().await?;
    /// guard.write(b"up to line 17").await?;
    /// let record = report.read().await?.expect("it was written");
    /// assert!(record.is_of_term() && record.data == b"up to line 17");
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a name out of range; [`Unavailable`](ErrorKind::Unavailable) or
    /// [`Indeterminate`](ErrorKind::Indeterminate) if no answer came within one operation timeout;
    /// [`Protocol`](ErrorKind::Protocol) if something else is in its place.
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn read(&self) -> Result<Option<Record>, Error> {
        self.name().check().map_err(|error| self.named(error))?;
        self.core.operate(self.backend.read_record(self.name())).await.map_err(|error| self.named(error))
    }

    /// Reads the record from the server that this client is connected to, without the lock. On ZooKeeper this is one request less than
    /// [`read`](RecordedMutex::read), and may be some moments old; elsewhere there is no difference.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// guard.release().await?;
    /// assert!(report.peek().await?.is_some()); // the stamp of that holder
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`read`](RecordedMutex::read).
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn peek(&self) -> Result<Option<Record>, Error> {
        self.name().check().map_err(|error| self.named(error))?;
        self.core.operate(self.backend.peek_record(self.name())).await.map_err(|error| self.named(error))
    }

    /// Resolves when the client is [closed](crate::Client::close), for whoever waits for something else than the lock, with the
    /// [`Closed`](ErrorKind::Closed) error that an acquisition would give.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.recorded("report")?;
    /// locks.close().await?;
    /// tokio::select! {
    ///     error = report.closed() => assert_eq!(error.kind(), lock_core::ErrorKind::Closed),
    ///     () = tokio::time::sleep(Duration::from_secs(60)) => {} // until the next report
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn closed(&self) -> Error {
        self.core.keeper.shutdown.begun().await;
        self.named(Error::new(ErrorKind::Closed, Phase::Acquire, "the client was closed"))
    }

    /// Waits for the lock, and stamps the record. While no server answers, it goes on with either for the client's
    /// [patience](crate::ClientOptions::patience), and with the stamp for as long as the lease lasts at most.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// assert_eq!(guard.record().term, guard.fencing_token()); // it is stamped
    /// guard.write(b"up to line 17").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Mutex::lock`]; [`InvalidArgument`](ErrorKind::InvalidArgument) for a retention out of range;
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before the record was stamped, or if the record has a newer token, as after a restart
    /// without data in which tokens began anew; [`Protocol`](ErrorKind::Protocol) if something else is in the record's place. The lock is
    /// then released.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. The record may be stamped.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    pub async fn lock(&self) -> Result<RecordedGuard, Error> {
        self.check_retention()?;
        let guard = FencedGuard::of(self.mutex.lock().await?)?;
        self.stamped(guard, BootInstant::FAR_FUTURE, StampTries::UntilEnd).await
    }

    /// Takes the lock if it is free, and stamps the record; `Ok(None)` if somebody else holds it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// if let Some(guard) = report.try_lock().await? {
    ///     guard.write(b"up to line 17").await?;
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) or [`Indeterminate`](ErrorKind::Indeterminate) if the server does not answer both
    /// requests within one operation timeout; the others of [`lock`](RecordedMutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. The record may be stamped.
    pub async fn try_lock(&self) -> Result<Option<RecordedGuard>, Error> {
        self.try_lock_for(Duration::ZERO).await
    }

    /// Waits for the lock for at most this long, and stamps the record; `Ok(None)` if somebody else still holds it then. While no server
    /// answers, it goes on with the stamp until one operation timeout after that, but no longer than the client's
    /// [patience](crate::ClientOptions::patience) after the grant, and as long as the lease lasts.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// assert!(report.try_lock_for(Duration::from_millis(10)).await?.is_none());
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) or [`Indeterminate`](ErrorKind::Indeterminate) if the server does not answer, at most
    /// one operation timeout after the deadline; the others of [`lock`](RecordedMutex::lock).
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. The record may be stamped.
    pub async fn try_lock_for(&self, wait: Duration) -> Result<Option<RecordedGuard>, Error> {
        self.check_retention()?;
        let end = self.core.keeper.clock.now().plus(wait).plus(self.core.options.op_timeout);
        match self.mutex.try_lock_for(wait).await? {
            Some(guard) => {
                let tries = if wait.is_zero() { StampTries::One } else { StampTries::UntilEnd };
                self.stamped(FencedGuard::of(guard)?, end, tries).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// Stamps the record, by `end` or, if that has passed, within one operation timeout; within the client's patience in any case: a lock
    /// whose record cannot be stamped is not held without work for the whole of a long wait.
    async fn stamped(
        &self,
        guard: FencedMutexGuard,
        end: BootInstant,
        tries: StampTries,
    ) -> Result<RecordedGuard, Error> {
        let mut guard = RecordedGuard { record: Record::new(guard.fencing_token()), lock: self.clone(), guard };
        let now = self.core.keeper.clock.now();
        let (patience, op_timeout) = (self.core.options.patience, self.core.options.op_timeout);
        let end = if end > now { end.min(now.plus(patience.max(op_timeout))) } else { now.plus(op_timeout) };
        match Attended::of(&guard).during(self.stamp(&guard, end, tries)).await {
            Ok(record) => {
                guard.record = record;
                Ok(guard)
            }
            Err(error) => {
                let error = self.after_release(guard, error, end).await;
                self.core.keeper.meters.failed(error.kind());
                Err(error)
            }
        }
    }

    /// Stamps the record by `end`, again after pauses if no server could be asked or its answer is not known, as long as the lock is held:
    /// to stamp twice is to stamp once.
    async fn stamp(&self, guard: &RecordedGuard, end: BootInstant, tries: StampTries) -> Result<Record, Error> {
        let Keeper { clock, shutdown, .. } = &***self.core.keeper;
        let (mut pauses, mut may_be_stamped) = (pauses(FIRST_PAUSE, LONGEST_PAUSE), false);
        loop {
            let stamp = before(&**clock, |_| end, guard.put(None, Phase::Acquire));
            let error = match stamp.await {
                Some(Ok(RecordWrite::Done(record))) => return Ok(record),
                // The grant is gone, or it is older than the record and still there: the caller's release tells which.
                Some(Ok(RecordWrite::NotHeld)) => guard.refused(Phase::Acquire),
                Some(Err(error)) => error,
                None => {
                    let what = "the record was not stamped in time; the lock is released";
                    return Err(self.named(Error::indeterminate(Phase::Acquire, what)));
                }
            };
            // The iterator is endless.
            let again_at = clock.now().plus(pauses.next().unwrap_or(LONGEST_PAUSE));
            let may_pass = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
            let ends = tries == StampTries::One || !may_pass || !guard.is_held() || again_at >= end;
            let is_closed = !ends
                && tokio::select! {
                    biased;
                    () = shutdown.begun() => true,
                    () = clock.sleep_until(again_at) => false,
                };
            if is_closed {
                may_be_stamped |= !error.is_definite();
                let closed = Error::new(ErrorKind::Closed, Phase::Acquire, "the client was closed");
                let closed = self.named(closed.with_source(error));
                return Err(if may_be_stamped { closed.ended_early() } else { closed });
            }
            if ends {
                if !may_be_stamped || !error.is_definite() {
                    return Err(error);
                }
                // A lock that is lost is lost, whatever became of its stamp.
                if error.kind() == ErrorKind::Lost {
                    return Err(error.ended_early());
                }
                let what = "the record was not stamped, and an earlier request without an answer may have stamped it";
                return Err(self.named(Error::indeterminate(Phase::Acquire, what).with_source(error)));
            }
            may_be_stamped |= !error.is_definite();
        }
    }

    /// The error of a call that took the lock and failed then: definite only if the lock is known to be released, by `end` or soon after.
    async fn after_release(&self, guard: RecordedGuard, error: Error, end: BootInstant) -> Error {
        if !error.is_definite() {
            return error;
        }
        let released = before(&*self.core.keeper.clock, |now| end.max(now.plus(CANCEL_GRACE)), guard.release()).await;
        let what = "the record was not stamped, and whether the lock is released is unknown";
        match released {
            Some(outcome) => error.after_release(&outcome, what),
            None => error.in_doubt(what),
        }
    }

    fn check_retention(&self) -> Result<(), Error> {
        let (least, most) = (Duration::from_secs(60), Record::LONGEST_RETENTION);
        if (least..=most).contains(&self.retention) {
            return Ok(());
        }
        let what = format!("the retention is {:?}, it must lie between {least:?} and {most:?}", self.retention);
        Err(self.core.refuses(Error::invalid(Phase::Configure, what), self.name()))
    }

    fn named(&self, error: Error) -> Error {
        self.core.named(error, self.name())
    }
}

/// The number of requests by which a call may stamp the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StampTries {
    One,
    UntilEnd,
}

impl fmt::Debug for RecordedMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedMutex")
            .field("name", self.name())
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}
