//! One small helper: a lock that ignores poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic of another thread while it held the lock is not passed on, because every critical section here
/// leaves the data valid after each statement.
pub(crate) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
