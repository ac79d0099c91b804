//! Items at the server, and their encoding: keys, values, times to live.

pub(crate) mod keys;
pub(crate) mod values;
