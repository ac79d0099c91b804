//! Code of a user of one backend, with that backend as the only dependency.

use lock_redis::{Error, LockName, Locks, Mutex, MutexGuard, RedisLocks};

/// A library takes a handle.
pub async fn once(job: &Mutex) -> Result<bool, Error> {
    let Some(guard): Option<MutexGuard> = job.try_lock().await? else { return Ok(false) };
    guard.release().await?;
    Ok(true)
}

/// An application connects, and may forget which backend it is.
pub async fn run(url: &str, name: &str) -> Result<bool, Error> {
    let locks: Locks = RedisLocks::connect(url).await?.into();
    once(&locks.mutex(LockName::new(name)?)).await
}
