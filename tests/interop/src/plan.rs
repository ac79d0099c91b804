//! The plan of a member, and the clock by which all of them go.

use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::scene::Scene;

/// The task of a member. It travels as JSON, as its only argument.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) scene: Scene,
    pub(crate) url: String,
    /// The key or path that all share.
    pub(crate) key: String,
    /// The number of holders at once, at most.
    pub(crate) limit: u32,
    /// The file with the number that they count up under the lock.
    pub(crate) counter: PathBuf,
    pub(crate) ttl_ms: u64,
    /// Between reading the number and writing it.
    pub(crate) work_ms: u64,
    /// After a release.
    pub(crate) pause_ms: u64,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
    pub(crate) special: Special,
}

/// One turn that does not go as the others do: the first one after an instant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Special {
    pub(crate) at: Instant,
    /// It works for this long, past its time to live, so that its library has to renew.
    pub(crate) work_ms: u64,
    /// Instead, it is killed while it holds (SIGKILL, by its own hand, so that it surely holds).
    pub(crate) dies: bool,
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the same as Python's `time.monotonic_ns` and Node's `process.hrtime.bigint`, and
/// Java's `System.nanoTime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Instant(pub(crate) u64);

impl Instant {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither is ever negative on this clock.
        Self(now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs())
    }

    pub(crate) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Zero if the other one is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
