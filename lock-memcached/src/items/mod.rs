//! The items of a lock, whatever its kind: their removal, their renewal, and their description for `inspect`.

pub(crate) mod pieces;
pub(crate) mod record;
pub(crate) mod refresh;
