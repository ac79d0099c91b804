//! Items at the server, and their encoding.

pub(crate) mod keys;
