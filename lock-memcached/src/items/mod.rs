//! The items of a lock, whatever its kind: their release, their renewal, and what is told beside them of their holders.

pub(crate) mod pieces;
pub(crate) mod reason;
pub(crate) mod record;
pub(crate) mod refresh;
