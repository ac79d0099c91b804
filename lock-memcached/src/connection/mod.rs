//! Talking to the server: everything that knows the client crate.

pub(crate) mod address;
pub(crate) mod command;
pub(crate) mod link;
mod pipe;
mod places;
pub(crate) mod reply;
pub(crate) mod seen;
