//! The handles and guards of every kind of lock.

mod detached;
mod fenced;
pub mod multi;
mod mutex;
mod recorded;
mod reentrant;
mod rwlock;
mod semaphore;

pub(crate) use detached::adopt;
pub use detached::{DetachError, DetachedMutex};
pub use fenced::{
    Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex,
    FencedRwLock, FencedWriteGuard,
};
pub use mutex::{Mutex, MutexGuard};
pub use recorded::{RecordedGuard, RecordedMutex};
pub use reentrant::{ReentrantGuard, ReentrantMutex};
pub use rwlock::{DowngradeError, ReadGuard, RwLock, WriteGuard};
pub use semaphore::{Permit, Semaphore};
