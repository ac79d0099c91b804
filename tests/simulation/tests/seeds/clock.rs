//! The clocks of a run.

use std::time::Duration;

/// µs since the epoch at which a run begins.
const EPOCH: u64 = 1_763_703_842_000_000;

/// The simulation's clock.
pub(crate) fn now() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

/// Returns the time of the server's clock.
pub(crate) fn clock(now: Duration) -> u64 {
    EPOCH + u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the simulation's time at which the server's clock shows this.
pub(crate) fn time_of(clock: u64) -> Duration {
    Duration::from_micros(clock.saturating_sub(EPOCH))
}
