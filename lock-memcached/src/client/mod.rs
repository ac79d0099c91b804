//! Talking to the server: everything that knows the client crate.

pub(crate) mod address;
pub(crate) mod cas;
mod connection;
pub(crate) mod detach_on_drop;
mod exchange;
pub(crate) mod health;
pub(crate) mod link;
pub(crate) mod pipeline;
pub(crate) mod protocol;
mod resolved;
mod shared;
mod sharing;
