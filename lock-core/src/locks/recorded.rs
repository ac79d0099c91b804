//! The mutex with a record beside it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{CANCEL_GRACE, Core};
use crate::clock::{BootInstant, Clock};
use crate::driver::bound::{before, bounded};
use crate::driver::{Guarantee, Record, RecordBackend, RecordWrite, Support};
use crate::error::{Error, ErrorKind, Phase};
use crate::lease::{Lease, LeaveError};
use crate::locks::{FencedGuard, FencedMutexGuard, Mutex, MutexGuard};
use crate::loss::LossReason;
use crate::name::LockName;
use crate::options::LeaseOptions;
use crate::owner::Owner;
use crate::token::FencingToken;

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
    #[must_use]
    pub fn with_lease(mut self, lease: LeaseOptions) -> Self {
        self.mutex = self.mutex.with_lease(lease);
        self
    }

    /// Sets the TTL of the guards that are taken through this handle.
    ///
    /// The client's [`renew_every`](LeaseOptions::renew_every), if it has one, stays: one of more than half of the new TTL is refused when
    /// the lock is taken. [`with_lease`](RecordedMutex::with_lease) sets both.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.with_ttl(ttl);
        self
    }

    /// Sets the time for which the record is kept after it was last stamped or written, at least: between a minute and
    /// [`Record::LONGEST_RETENTION`], which is the default.
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
    /// # Cancel safety
    /// Dropping it has no effect.
    pub async fn closed(&self) -> Error {
        self.core.keeper.shutdown.begun().await;
        self.named(Error::new(ErrorKind::Closed, Phase::Acquire, "the client was closed"))
    }

    /// Waits for the lock, and stamps the record.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`]; [`InvalidArgument`](ErrorKind::InvalidArgument) for a retention out of range;
    /// [`Lost`](ErrorKind::Lost) if the lock was lost before the record was stamped; [`Protocol`](ErrorKind::Protocol) if something
    /// else is in the record's place. The lock is then released.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: no lock, queue entry or renewal stays behind. The record may be stamped.
    ///
    /// Do not keep this future without polling it (in a `select!` loop, say): it keeps its place in the queue, and may be handed a lock
    /// that blocks everybody, for up to one TTL, on ZooKeeper for as long as its client lives. Spawn it, or drop it.
    pub async fn lock(&self) -> Result<RecordedGuard, Error> {
        self.check_retention()?;
        self.stamped(self.mutex.lock().await?, BootInstant::from_origin(Duration::ZERO)).await
    }

    /// Takes the lock if it is free, and stamps the record; `Ok(None)` if somebody else holds it.
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

    /// Waits for the lock for at most this long, and stamps the record; `Ok(None)` if somebody else still holds it then.
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
            Some(guard) => self.stamped(guard, end).await.map(Some),
            None => Ok(None),
        }
    }

    /// Stamps the record, by `end` or, if that has passed or is not set, within one operation timeout.
    async fn stamped(&self, guard: MutexGuard, end: BootInstant) -> Result<RecordedGuard, Error> {
        let guard = FencedGuard::of(guard)?;
        let mut guard = RecordedGuard { record: Record::new(guard.fencing_token()), lock: self.clone(), guard };
        let now = self.core.keeper.clock.now();
        let end = if end > now { end } else { now.plus(self.core.options.op_timeout) };
        let late = || {
            let what = "the record was not stamped within the operation timeout; the lock is released";
            self.named(Error::indeterminate(Phase::Acquire, what))
        };
        let stamp = before(&*self.core.keeper.clock, |_| end, guard.put(None, Phase::Acquire));
        match stamp.await.unwrap_or_else(|| Err(late())) {
            Ok(record) => {
                guard.record = record;
                Ok(guard)
            }
            Err(error) => Err(self.after_release(guard, error, end).await),
        }
    }

    /// The error of a call that took the lock and failed then: definite only if the lock is known to be released, by `end` or soon after.
    async fn after_release(&self, guard: RecordedGuard, error: Error, end: BootInstant) -> Error {
        if !error.is_definite() {
            return error;
        }
        let released = before(&*self.core.keeper.clock, |now| end.max(now.plus(CANCEL_GRACE)), guard.release()).await;
        match released {
            Some(Ok(())) => error,
            Some(Err(release)) if release.kind() == ErrorKind::NotHeld => error,
            _ => {
                let what = "the record was not stamped, and whether the lock is released is unknown";
                self.named(Error::indeterminate(Phase::Acquire, what).with_source(error))
            }
        }
    }

    fn check_retention(&self) -> Result<(), Error> {
        let (least, most) = (Duration::from_secs(60), Record::LONGEST_RETENTION);
        if (least..=most).contains(&self.retention) {
            return Ok(());
        }
        let what = format!("the retention is {:?}, it must lie between {least:?} and {most:?}", self.retention);
        Err(self.named(Error::invalid(Phase::Configure, what)))
    }

    fn named(&self, error: Error) -> Error {
        self.core.named(error, self.name())
    }
}

impl fmt::Debug for RecordedMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedMutex")
            .field("name", self.name())
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

/// Holds a [`RecordedMutex`]: may write the record. Everything a holder can ask is on [`Lease`], to which it dereferences.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RecordedGuard {
    lock: RecordedMutex,
    guard: FencedMutexGuard,
    record: Record,
}

impl RecordedGuard {
    /// The fencing token, which is the record's [term](Record::term) until somebody else takes the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The record as it was when the lock was taken: stamped with this grant's token, with the data of a holder before.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Writes the record.
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) for more than [`Record::MAX_BYTES`];
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost, also if the server says so only now: nothing was written;
    /// - [`Unavailable`](ErrorKind::Unavailable) if nothing was sent;
    /// - [`Indeterminate`](ErrorKind::Indeterminate) if no answer came: it may be written, now or, as long as nobody else has
    ///   taken the lock, a little later. Writing again is sound.
    ///
    /// # Cancel safety
    /// May be carried out although the future was dropped.
    pub async fn write(&self, data: &[u8]) -> Result<(), Error> {
        if data.len() > Record::MAX_BYTES {
            let what = format!("the record would have {} bytes, at most {} are allowed", data.len(), Record::MAX_BYTES);
            return Err(self.lock.named(Error::invalid(Phase::Hold, what)));
        }
        self.put(Some(data), Phase::Hold).await.map(|_| ())
    }

    async fn put(&self, data: Option<&[u8]>, phase: Phase) -> Result<Record, Error> {
        self.check(phase)?;
        let RecordedMutex { core, backend, retention, .. } = &self.lock;
        let clock = &*core.keeper.clock;
        let sent_at = clock.now();
        let asked = backend.write_record(&self.live.attempt, self.fencing_token(), data, *retention);
        match bounded(clock, core.options.op_timeout, phase, asked).await.map_err(|error| self.lock.named(error))? {
            RecordWrite::Done(record) => Ok(record),
            RecordWrite::NotHeld => {
                self.mark_gone(sent_at, None);
                let reason = self.live.loss().unwrap_or(LossReason::Taken);
                Err(self.lock.named(Error::lost(phase, reason)))
            }
        }
    }

    /// Leaves the lock behind: it stays taken for `time` from now by the server's clock, and is free then. The record stays. See
    /// [`MutexGuard::leave`].
    ///
    /// # Errors
    /// Those of [`MutexGuard::leave`]. The guard comes back in the error if nothing was asked of the servers.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that was never polled has asked nothing: its drop releases the lock.
    pub async fn leave(self, time: Duration) -> Result<(), LeaveError<Self>> {
        let Self { lock, guard, record } = self;
        guard.leave(time).await.map_err(|failed| failed.map(|guard| Self { lock, guard, record }))
    }

    /// Releases the lock and reports the outcome, within one operation timeout. The record stays.
    ///
    /// # Errors
    /// [`NotHeld`](ErrorKind::NotHeld) if the lock had been lost; [`Indeterminate`](ErrorKind::Indeterminate) if no confirmation
    /// came: the client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background.
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

impl Deref for RecordedGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}
