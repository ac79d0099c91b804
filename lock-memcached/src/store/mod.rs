//! Items at the server, and their encoding: keys, values, times to live.

pub(crate) mod forced;
pub(crate) mod keys;
pub(crate) mod nonce;
pub(crate) mod pieces;
pub(crate) mod record;
pub(crate) mod refresh;
pub(crate) mod ttl;
