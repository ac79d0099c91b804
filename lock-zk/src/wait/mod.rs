//! How a place in the queue is taken, and how whoever is behind somebody learns that he is first.

pub(crate) mod claim;
pub(crate) mod permits;
pub(crate) mod queue;
