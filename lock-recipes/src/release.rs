//! The end of a recipe's hold, and of a call that failed under it.

use lock_core::driver::log;
use lock_core::{Error, ErrorKind, LockName, RecordedGuard};

/// Releases the lock. It ends with its lease if that fails; what is recorded counts.
pub(crate) async fn release(guard: RecordedGuard) {
    let name = guard.name().clone();
    if let Err(error) = guard.release().await {
        log(|| tracing::debug!(%name, %error, "the lock was not released"));
    }
}

/// Releases the lock of a call that failed, and returns the error of the call: definite only if the lock is known to be released.
pub(crate) async fn after_release(guard: RecordedGuard, error: Error) -> Error {
    let name = guard.name().clone();
    match guard.release().await {
        Ok(()) => error,
        Err(released) if released.kind() == ErrorKind::NotHeld => error,
        Err(_) => unknown(error, &name, "the call failed, and whether its lock is released is unknown"),
    }
}

/// Returns an error about this lock as one of which it is unknown what it has left, with the error as its cause if that was definite.
pub(crate) fn unknown(error: Error, name: &LockName, what: &'static str) -> Error {
    if !error.is_definite() {
        return error;
    }
    let mut unknown = Error::indeterminate(error.phase(), what).with_name(name);
    if let Some(backend) = error.backend() {
        unknown = unknown.with_backend(backend);
    }
    unknown.with_source(error)
}
