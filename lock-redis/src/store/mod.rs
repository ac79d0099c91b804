//! The data of a lock at the server: under which keys, in which form, and how scripts and replies carry it.

pub(crate) mod dialect;
mod digest;
pub(crate) mod keys;
pub(crate) mod record;
mod redisson;
pub(crate) mod reply;
pub(crate) mod scripts;

use std::time::Duration;

/// Whole milliseconds, as Redis wants them. What is rounded off a TTL is less than the granularity that every lease has
/// subtracted.
pub(crate) fn milliseconds(duration: Duration) -> String {
    duration.as_millis().to_string()
}
