//! Talking to the server.

pub(crate) mod address;
pub(crate) mod cas;
pub(crate) mod detach_on_drop;
pub(crate) mod health;
pub(crate) mod link;
mod pipeline;
pub(crate) mod protocol;
pub(crate) mod resolved;
mod rights;
pub(crate) mod words;
