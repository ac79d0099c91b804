//! What is at the servers: which nodes a lock has, what they are called, and what they say.

pub(crate) mod contender;
pub(crate) mod dialect;
pub(crate) mod force_release;
pub(crate) mod layout;
pub(crate) mod record;
