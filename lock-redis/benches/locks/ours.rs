//! The loop of one task that uses our locks.

use bench_support::Cycle;
use lock_redis::{Mutex, RwLock, Semaphore};

use crate::Outcome;

/// A lock of which nobody else wants anything.
pub(crate) enum Ours {
    Mutex(Mutex),
    Reader(RwLock),
    Permit(Semaphore),
}

impl Cycle for Ours {
    async fn go(&mut self) -> Outcome {
        match self {
            Self::Mutex(mutex) => mutex.lock().await?.release().await?,
            Self::Reader(lock) => lock.read().await?.release().await?,
            Self::Permit(semaphore) => semaphore.acquire().await?.release().await?,
        }
        Ok(())
    }
}
