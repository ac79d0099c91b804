//! A mutex of the standard library, taken although somebody panicked with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose data are whole between any two steps.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
