//! Our own locks, of any backend.

use bench_support::Outcome;
use lock_core::{Locks, Mutex, RwLock, Semaphore};

use crate::contender::{Contender, Local, Turn};

/// One task's lock. Every backend here has all three kinds.
enum Ours {
    Mutex(Mutex),
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

/// The kinds of one client: mutex, write lock and permit. Names of different kinds are different locks.
pub(crate) fn kinds(package: &str, locks: &Locks) -> Vec<Box<dyn Contender>> {
    let (mutex, write, permit) = (locks.clone(), locks.clone(), locks.clone());
    vec![
        Local::boxed(format!("**{package}** mutex"), true, move |_, name| Ours::Mutex(mutex.mutex(name))),
        Local::boxed(format!("**{package}** write lock"), true, move |_, name| Ours::Write(write.rwlock(name))),
        Local::boxed(format!("**{package}** permit"), true, move |_, name| Ours::Permit(permit.semaphore(name, 1))),
    ]
}
