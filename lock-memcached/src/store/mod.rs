//! Items at the server, and their encoding. The epoch's item is read and written by [`Epoch`](crate::epoch::Epoch).

pub(crate) mod keys;
pub(crate) mod reason;
pub(crate) mod record;
