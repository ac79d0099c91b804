//! The end of a recipe's hold, and of a call that failed under it.

use lock_core::driver::log;
use lock_core::{Error, LockName, RecordedGuard};

/// Releases the lock. It ends with its lease if that fails; what is recorded counts.
pub(crate) async fn release(guard: RecordedGuard) {
    let name = guard.name().clone();
    if let Err(error) = guard.release().await {
        log(|| tracing::debug!(%name, %error, "the lock was not released"));
    }
}

/// Releases the lock of a call that failed, and returns the error of the call: definite only if the lock is known to be released.
pub(crate) async fn after_release(guard: RecordedGuard, error: Error) -> Error {
    error.after_release(&guard.release().await, "the call failed, and whether its lock is released is unknown")
}

/// Returns this error as one of which it is unknown what it has left, with the error as its cause if that was definite.
pub(crate) fn unknown(error: Error, what: &'static str) -> Error {
    if error.is_definite() { caused_by(error, what) } else { error }
}

/// Returns an error of an unknown outcome, which another one about the lock has caused.
pub(crate) fn caused_by(error: Error, what: &'static str) -> Error {
    let mut unknown = Error::indeterminate(error.phase(), what);
    if let Some(name) = error.name() {
        unknown = unknown.with_name(&LockName::from(name));
    }
    if let Some(backend) = error.backend() {
        unknown = unknown.with_backend(backend);
    }
    unknown.with_source(error)
}
