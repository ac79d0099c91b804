//! The bytes and ends that travel between the two sides of a connection.

use std::sync::Arc;

use tokio::time::Instant;

use super::active::Active;

/// Something for the other end, with the faults that it meets on its way.
#[derive(Debug)]
pub(super) struct Parcel {
    /// Nothing is the end of what is sent.
    pub(super) bytes: Option<Vec<u8>>,
    /// Not before this instant.
    pub(super) due: Instant,
    pub(super) hits: Vec<Arc<Active>>,
}
