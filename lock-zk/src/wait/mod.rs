//! Waiting: tell me when. An attempt's place in the queue, and the news that it may have moved on.

pub(crate) mod contention;
pub(crate) mod listings;
pub(crate) mod shared_path;
pub(crate) mod watch;

use std::time::Duration;

/// The pause between two looks of a waiter of its own accord, unless too many wait: the event that was to wake it may have been
/// lost, and is late by less than a second then.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(500);
