//! The items of a lock, whatever its kind: their release, their renewal, and what is told beside them of their holders.
//!
//! A grant is a set of *pieces*: keys that hold its number, each with the CAS number by which its item is known to be unchanged. A mutex
//! has one piece, a semaphore's grant one for each permit, a reader its slot, a writer its key. Claims, renewals and releases are written
//! once for all of them.

pub(crate) mod pieces;
pub(crate) mod reason;
pub(crate) mod record;
pub(crate) mod refresh;
