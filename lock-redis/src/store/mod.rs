//! The data of a lock at the server: under which keys, in which form, and how scripts and replies carry it.

pub(crate) mod call;
pub(crate) mod dialect;
mod digest;
pub(crate) mod keys;
pub(crate) mod record;
mod redisson;
pub(crate) mod reply;
pub(crate) mod scripts;
pub(crate) mod slot;
