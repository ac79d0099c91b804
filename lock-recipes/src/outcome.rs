//! The outcomes of a slot that was asked for.

use std::fmt;
use std::time::SystemTime;

use lock_core::{Error, Holder};

use crate::release::caused_by;
use crate::slot::Slot;

/// The outcome of [`Once::run`](crate::Once::run).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The job ran here, to its end, and that is recorded.
    Ran(T),
    /// The job did not run here: this slot or a later one was begun before.
    Skipped {
        /// The slot that was begun, the latest one of all.
        slot: Slot,
        /// The owner that has begun it.
        by: String,
        /// The time at which that was written, by that process' clock.
        at: SystemTime,
    },
    /// The job did not run here: somebody else is at it, or at another slot.
    Busy(Option<Holder>),
}

impl<T> Outcome<T> {
    /// The value of a job that ran here.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let once = lock_recipes::Once::new(locks.recorded("invoices")?);
    /// assert_eq!(once.run(7, |_token| async { "sent" }).await?.ran(), Some("sent"));
    /// assert_eq!(once.run(7, |_token| async { "sent" }).await?.ran(), None); // skipped
    /// # Ok(()) }
    /// ```
    pub fn ran(self) -> Option<T> {
        match self {
            Self::Ran(value) => Some(value),
            _ => None,
        }
    }
}

/// Tells of a job whose end is not recorded.
const NOT_RECORDED: &str = "the job has run, and that was not recorded";
/// Tells of a job whose lock was not left.
const NOT_LEFT: &str = "the job has run, and its lock may be free too soon";

/// The error of [`Once::run`](crate::Once::run), by how far the job came.
#[non_exhaustive]
pub enum OnceError<T> {
    /// The job did not run here: the lock could not be had, or the record not be read.
    NotRun(Error),
    /// The job did not run here, because it was not confirmed that its beginning is recorded. It may be: then the slot counts as
    /// begun by somebody who has gone.
    NotStarted(Error),
    /// The lock was lost while the job ran, and the job was dropped at its next await point.
    Dropped(Error),
    /// The job ran to its end, and it was not confirmed that this is recorded. The slot counts as begun, and perhaps as done. Its
    /// lock may be free before the time of [`with_at_least`](crate::Once::with_at_least), too.
    NotRecorded {
        /// The value of the job.
        value: T,
        /// The reason for which it was not recorded.
        source: Error,
    },
    /// The job ran to its end, and what it came to is recorded; it was not confirmed that its lock stays taken for the time that was
    /// [asked for](crate::Once::with_at_least). The next slot's job may run sooner; if the outcome is unknown, the client goes on leaving the
    /// lock in the background.
    NotLeft {
        /// The value of the job.
        value: T,
        /// The reason for which the lock was not left.
        source: Error,
    },
}

impl<T> OnceError<T> {
    /// The error of the lock.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// # let locks = lock_core::MemoryLocks::new();
    /// let once = lock_recipes::Once::new(locks.recorded("invoices")?);
    /// locks.close().await?;
    /// let failed = once.run(7, |_token| async { "sent" }).await.unwrap_err();
    /// assert_eq!(failed.error().kind(), lock_core::ErrorKind::Closed);
    /// assert_eq!(failed.into_value(), None); // the job did not run
    /// # Ok(()) }
    /// ```
    pub fn error(&self) -> &Error {
        match self {
            Self::NotRun(error) | Self::NotStarted(error) | Self::Dropped(error) => error,
            Self::NotRecorded { source, .. } | Self::NotLeft { source, .. } => source,
        }
    }

    /// The value of a job that ran to its end.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lock_core::Error> {
    /// use lock_core::memory::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let once = lock_recipes::Once::new(store.connect().recorded("invoices")?);
    /// let job = |_token| async {
    ///     store.lose("invoices"); // as if the server had lost its memory
    ///     "sent"
    /// };
    /// let failed = once.run(7, job).await.unwrap_err();
    /// assert_eq!(failed.into_value(), Some("sent")); // it ran, and that is not recorded
    /// # Ok(()) }
    /// ```
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::NotRecorded { value, .. } | Self::NotLeft { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl<T> From<OnceError<T>> for Error {
    /// Drops the value of a job that ran to its end: the error says that it has run, and its outcome is unknown
    /// ([`ErrorKind::Indeterminate`](lock_core::ErrorKind::Indeterminate)). Of another failure it keeps the lock's error, whose
    /// [`retry`](Error::retry) speaks of the lock and not of the job.
    fn from(failed: OnceError<T>) -> Self {
        match failed {
            OnceError::NotRun(error) | OnceError::NotStarted(error) | OnceError::Dropped(error) => error,
            OnceError::NotRecorded { source, .. } => caused_by(source, NOT_RECORDED),
            OnceError::NotLeft { source, .. } => caused_by(source, NOT_LEFT),
        }
    }
}

impl<T> fmt::Display for OnceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRun(_) => "the job did not run",
            Self::NotStarted(_) => "the job did not run: its beginning was not recorded",
            Self::Dropped(_) => "the lock was lost, and the job dropped",
            Self::NotRecorded { .. } => NOT_RECORDED,
            Self::NotLeft { .. } => NOT_LEFT,
        })
    }
}

impl<T> fmt::Debug for OnceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceError").field(&self.to_string()).field(self.error()).finish()
    }
}

impl<T> std::error::Error for OnceError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{ErrorKind, Phase};

    use super::*;

    #[test]
    fn the_error_of_a_job_that_has_run_says_so_and_is_not_definite() {
        let source = || Error::unavailable(Phase::Release, "the test");
        let asked = || -> Result<(), Error> { Err(OnceError::NotRecorded { value: 7, source: source() })? };
        let error = asked().unwrap_err();
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Release));
        assert!(error.to_string().contains("the job has run"), "{error}");
        let error = Error::from(OnceError::NotLeft { value: 7, source: source() });
        assert!(!error.is_definite() && error.to_string().contains("the job has run"), "{error}");
    }

    #[test]
    fn the_error_of_a_job_that_did_not_run_is_that_of_its_lock() {
        let error = Error::from(OnceError::<()>::NotRun(Error::unavailable(Phase::Acquire, "the test")));
        assert_eq!((error.kind(), error.phase()), (ErrorKind::Unavailable, Phase::Acquire));
    }
}
