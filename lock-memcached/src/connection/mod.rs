//! Talking to the server: everything that knows the client crate, and the one connection that does not.

pub(crate) mod address;
pub(crate) mod command;
pub(crate) mod link;
pub(crate) mod plain;
