//! What is done with the items of a lock, whatever its kind: they are removed, given more time, and described for `inspect`.

pub(crate) mod pieces;
pub(crate) mod record;
pub(crate) mod refresh;
