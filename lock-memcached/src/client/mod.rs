//! Talking to the server.

mod batch;
pub(crate) mod batches;
pub(crate) mod cas;
pub(crate) mod detach_on_drop;
pub(crate) mod health;
pub(crate) mod link;
mod pipeline;
pub(crate) mod protocol;
pub(crate) mod resolved;
pub(crate) mod rights;
pub(crate) mod shared_work;
