//! The queue of a lock: nodes in it, and the waits for those before them.

mod claim;
mod free_permits;
pub(crate) mod permits;
pub(crate) mod queue;

use std::time::Duration;

use lock_core::clock::BootInstant;

/// The pause between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been
/// lost, and is late by less than a second then.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The position of a registration in its queue, by a listing.
pub(crate) enum QueuePosition {
    /// Nobody that matters is before it; the listing was asked for at this instant.
    First(BootInstant),
    /// The node at this path is to go first.
    Behind(String),
    /// The registration has no node: somebody has deleted it, or its claim was refused.
    Missing,
}
