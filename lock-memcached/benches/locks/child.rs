//! Orders of a benchmark to the processes that it starts.

use lock_core::clock::{Clock, SystemClock};

/// The orders to a child process: the server's URL.
pub(crate) const URL: &str = "LOCK_BENCH_CHILD_URL";
/// The part in which it takes part.
pub(crate) const PART: &str = "LOCK_BENCH_CHILD_PART";

/// The purpose of this process, if a benchmark started it: the URL, and the part.
pub(crate) fn is_child() -> Option<(String, String)> {
    Some((std::env::var(URL).ok()?, std::env::var(PART).ok()?))
}

/// Nanoseconds of the clock that all processes of a machine share.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}
