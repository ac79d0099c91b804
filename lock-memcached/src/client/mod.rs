//! Talking to the server.

pub(crate) mod cas;
pub(crate) mod health;
pub(crate) mod link;
pub(crate) mod protocol;
pub(crate) mod rights;
