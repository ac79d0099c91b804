//! The four kinds of lock.

pub(crate) mod holders;
mod mutex;
mod reentrant;
mod rwlock;
mod semaphore;
