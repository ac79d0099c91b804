//! The kinds of locks, and where they differ: the keys they have, and the order in which those are taken.

pub(crate) mod reader_slots;
mod rwlock;
pub(crate) mod semaphore;
mod single;
mod slots;
