//! Our own locks, of any backend.

use bench_support::Outcome;
use lock_core::{Locks, Mutex, RwLock, Semaphore};

use crate::contender::{Contender, Local, Turn};

/// One task's lock. Every backend here has all three kinds.
enum Ours {
    Mutex(Mutex),
    Read(Option<RwLock>),
    Write(Option<RwLock>),
    Permit(Option<Semaphore>),
}

impl Turn for Ours {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        match self {
            Self::Mutex(mutex) => {
                let guard = mutex.lock().await?;
                holds();
                guard.release().await?;
            }
            Self::Read(lock) => {
                let guard = lock.as_ref().ok_or("no read-write locks")?.read().await?;
                holds();
                guard.release().await?;
            }
            Self::Write(lock) => {
                let guard = lock.as_ref().ok_or("no read-write locks")?.write().await?;
                holds();
                guard.release().await?;
            }
            Self::Permit(semaphore) => {
                let permit = semaphore.as_ref().ok_or("no semaphores")?.acquire().await?;
                holds();
                permit.release().await?;
            }
        }
        Ok(())
    }
}

/// The mutex of one client.
pub(crate) fn mutex(name: &str, locks: &Locks) -> Box<dyn Contender> {
    let locks = locks.clone();
    Local::ours(name, false, false, move |_, name| Ours::Mutex(locks.mutex(name)))
}

/// The kinds of one client: mutex, read and write lock, and permit. Names of different kinds are different locks.
pub(crate) fn kinds(package: &str, locks: &Locks) -> Vec<Box<dyn Contender>> {
    let [mutex, read, write, permit] = [(); 4].map(|()| locks.clone());
    let name = |kind: &str| format!("{package} {kind}");
    vec![
        Local::ours(name("mutex"), true, false, move |_, name| Ours::Mutex(mutex.mutex(name))),
        Local::ours(name("read lock"), true, true, move |_, name| Ours::Read(read.rwlock(name))),
        Local::ours(name("write lock"), true, false, move |_, name| Ours::Write(write.rwlock(name))),
        Local::ours(name("permit"), true, false, move |_, name| Ours::Permit(permit.semaphore(name, 1))),
    ]
}
