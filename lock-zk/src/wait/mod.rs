//! The queue of a lock: nodes in it, and the waits for those before them.

pub(crate) mod contention;
pub(crate) mod entry;
mod free_permits;
mod permit_taking;
pub(crate) mod permits;
pub(crate) mod taking;
mod watch;

use std::time::Duration;

/// The pause between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been
/// lost, and is late by less than a second then.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);
