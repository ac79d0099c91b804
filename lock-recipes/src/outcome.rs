//! The outcomes of a slot that was asked for.

use std::fmt;
use std::time::SystemTime;

use lock_core::{Error, Holder};

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
    pub fn ran(self) -> Option<T> {
        match self {
            Self::Ran(value) => Some(value),
            _ => None,
        }
    }
}

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
    pub fn error(&self) -> &Error {
        match self {
            Self::NotRun(error) | Self::NotStarted(error) | Self::Dropped(error) => error,
            Self::NotRecorded { source, .. } | Self::NotLeft { source, .. } => source,
        }
    }

    /// The value of a job that ran to its end.
    pub fn into_value(self) -> Option<T> {
        match self {
            Self::NotRecorded { value, .. } | Self::NotLeft { value, .. } => Some(value),
            _ => None,
        }
    }
}

impl<T> From<OnceError<T>> for Error {
    /// Drops the value of a job that ran to its end, if there is one.
    fn from(failed: OnceError<T>) -> Self {
        match failed {
            OnceError::NotRun(error) | OnceError::NotStarted(error) | OnceError::Dropped(error) => error,
            OnceError::NotRecorded { source, .. } | OnceError::NotLeft { source, .. } => source,
        }
    }
}

impl<T> fmt::Display for OnceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRun(_) => "the job did not run",
            Self::NotStarted(_) => "the job did not run: its beginning was not recorded",
            Self::Dropped(_) => "the lock was lost, and the job dropped",
            Self::NotRecorded { .. } => "the job has run, and that was not recorded",
            Self::NotLeft { .. } => "the job has run, and its lock may be free too soon",
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
    fn the_error_of_a_slot_becomes_that_of_its_lock() {
        let asked = || -> Result<(), Error> {
            let source = Error::unavailable(Phase::Release, "the test");
            Err(OnceError::NotRecorded { value: 7, source })?
        };
        assert_eq!(asked().unwrap_err().kind(), ErrorKind::Unavailable);
        let dropped = OnceError::<()>::Dropped(Error::unavailable(Phase::Hold, "the test"));
        assert_eq!(Error::from(dropped).phase(), Phase::Hold);
    }
}
