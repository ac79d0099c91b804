//! The handles and guards of every kind of lock, and the client that offers them whatever its backend.

mod erased;
mod fenced;
pub mod multi;
mod mutex;
mod reentrant;
mod rwlock;
mod semaphore;

pub use erased::Locks;
pub use fenced::{
    Fenced, FencedGuard, FencedMutex, FencedMutexGuard, FencedReadGuard, FencedReentrantGuard, FencedReentrantMutex,
    FencedRwLock, FencedWriteGuard,
};
pub use mutex::{Mutex, MutexGuard};
pub use reentrant::{ReentrantGuard, ReentrantMutex};
pub use rwlock::{DowngradeError, ReadGuard, RwLock, WriteGuard};
pub use semaphore::{Permit, Semaphore};
