//! The guard of a mutex with a record beside it.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use super::RecordedMutex;
use crate::driver::bound::bounded;
use crate::driver::{Record, RecordWrite};
use crate::error::{Error, Phase};
use crate::lease::state::Event;
use crate::lease::{Attended, Lease, LeaveError};
use crate::locks::FencedMutexGuard;
use crate::loss::LossReason;
use crate::token::FencingToken;
#[cfg(doc)]
use crate::{ErrorKind, MutexGuard};

/// Holds a [`RecordedMutex`]: may write the record. Everything a holder can ask is on [`Lease`], to which it dereferences.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
/// # let locks = lock_core::MemoryLocks::new();
/// let guard = locks.recorded("report")?.lock().await?;
/// assert!(guard.is_held() && guard.record().term == guard.fencing_token());
/// guard.write(b"up to line 17").await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct RecordedGuard {
    pub(super) lock: RecordedMutex,
    pub(super) guard: FencedMutexGuard,
    pub(super) record: Record,
}

impl RecordedGuard {
    /// The fencing token, which is the record's [term](Record::term) until somebody else takes the lock.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The record as it was when the lock was taken: stamped with this grant's token, with the data of a holder before.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let first = report.lock().await?;
    /// first.write(b"up to line 17").await?;
    /// first.release().await?;
    /// let next = report.lock().await?;
    /// assert_eq!(next.record().data, b"up to line 17"); // go on from there
    /// next.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Writes the record.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// guard.write(b"up to line 17").await?;
    /// guard.write(b"up to line 34").await?; // in its place
    /// assert_eq!(report.read().await?.map(|record| record.data), Some(b"up to line 34".to_vec()));
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`InvalidArgument`](ErrorKind::InvalidArgument) for more than [`Record::MAX_BYTES`];
    /// - [`Lost`](ErrorKind::Lost) if the lock is lost, also if the server says so only now: nothing was written. A record with a newer token
    ///   refuses a write too, as after a restart without data in which tokens began anew: the lock is then given up, and released in the
    ///   background;
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
        match self.put(Some(data), Phase::Hold).await? {
            RecordWrite::Done(_) => Ok(()),
            RecordWrite::NotHeld => {
                self.keeper.settle(&self.live, Event::Refused);
                Err(self.refused(Phase::Hold))
            }
        }
    }

    /// Runs `work`, and has the lease renewed meanwhile only as long as this call is polled: for a call that returns the guard later. A guard
    /// inside a future is renewed for as long as somebody keeps that future, polled or not; here the lock is free after one TTL without a
    /// poll. Of several such calls at once, one that is polled keeps the lock. `work` is not dropped when the lock is lost: see
    /// [`while_held`](Lease::while_held).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use lock_core::{Error, RecordedGuard, RecordedMutex};
    ///
    /// async fn announced(lock: &RecordedMutex) -> Result<RecordedGuard, Error> {
    ///     let guard = lock.lock().await?;
    ///     guard.while_polled(guard.write(b"http://10.0.0.7:8080")).await?;
    ///     Ok(guard) // renewed by itself from now on
    /// }
    ///
    /// announced(&locks.recorded("report")?).await?.release().await
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping it drops `work`; after the last such call the guard is renewed by itself again.
    pub async fn while_polled<T>(&self, work: impl Future<Output = T>) -> T {
        Attended::of(self).during(work).await
    }

    pub(super) async fn put(&self, data: Option<&[u8]>, phase: Phase) -> Result<RecordWrite, Error> {
        self.check(phase)?;
        let RecordedMutex { core, backend, retention, .. } = &self.lock;
        let asked = backend.write_record(&self.live.attempt, self.fencing_token(), data, *retention);
        let answer = bounded(&*core.keeper.clock, core.options.op_timeout, phase, asked).await;
        answer.map_err(|error| self.lock.named(error))
    }

    /// The error of a write that was refused.
    pub(super) fn refused(&self, phase: Phase) -> Error {
        self.lock.named(Error::lost(phase, self.live.loss().unwrap_or(LossReason::Taken)))
    }

    /// Leaves the lock behind: it stays taken for `time` from now by the server's clock, and is free then. The record stays. See
    /// [`MutexGuard::leave`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// use std::time::Duration;
    ///
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// guard.write(b"sent").await?;
    /// guard.leave(Duration::from_secs(60)).await?;
    /// assert!(report.try_lock().await?.is_none()); // for a minute
    /// # Ok(()) }
    /// ```
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
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let report = locks.recorded("report")?;
    /// let guard = report.lock().await?;
    /// guard.write(b"sent").await?;
    /// guard.release().await?;
    /// assert!(report.read().await?.is_some());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`NotHeld`](ErrorKind::NotHeld) if the lock had been lost; [`Indeterminate`](ErrorKind::Indeterminate) if no confirmation
    /// came: the client goes on in the background until it is confirmed or the lease is over.
    ///
    /// # Cancel safety
    /// A dropped call is finished in the background. One that is kept without being polled (in a `select!` loop, say) may leave the lock
    /// taken: for up to one TTL, on ZooKeeper for as long as its client lives.
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
