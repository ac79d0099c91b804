//! Durations as the server counts them: in whole seconds, by a clock that ends items early.
//!
//! An item with a TTL of n seconds lives for more than n − 2 and at most n seconds: its second has begun when it is
//! stored, and about every 500 s the server's clock makes up for its drift with a step of two. After a pause of the server its
//! clock may be behind by 2.5 s more before it is noticed (see [`crate::epoch::server_clock`]). So a lease is stored with [`MARGIN`],
//! which is more than both together, beyond its end: what ends first is always the holder's own deadline.

use std::time::Duration;

use lock_core::driver::Attempt;
use lock_core::{Error, ErrorKind, LeaseOptions, Phase};

use crate::config::{MemcachedConfig, RestartPolicy};

/// Time for which an item is stored beyond its lease.
pub(crate) const MARGIN: Duration = Duration::from_secs(5);

/// Time for which an item blocks others beyond its lease if nobody deletes it: the margin, and what rounding adds.
pub(crate) const OUTLASTS: Duration = Duration::from_secs(MARGIN.as_secs() + 1);

/// The TTL of an item that is to live for this long at least.
pub(crate) fn seconds(lease: Duration) -> u32 {
    let whole = lease.as_secs() + u64::from(lease.subsec_nanos() > 0);
    // No lease is longer than a day.
    u32::try_from(whole + MARGIN.as_secs()).unwrap_or(u32::MAX)
}

/// The longest lease that a client grants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LongestLease(Duration);

impl LongestLease {
    pub(crate) fn of(config: &MemcachedConfig) -> Self {
        let is_off = config.restart_policy == RestartPolicy::Off;
        Self(if is_off { LeaseOptions::MAX_TTL } else { config.longest_lease })
    }

    /// Refuses an attempt with a longer TTL.
    pub(crate) fn check(self, attempt: &Attempt, ttl: Duration) -> Result<(), Error> {
        if ttl <= self.0 {
            return Ok(());
        }
        let what = format!("the TTL is {ttl:?}, above the client's longest_lease of {:?}", self.0);
        Err(attempt.error(ErrorKind::InvalidArgument, Phase::Configure, what))
    }

    /// The TTL of an item that is to outlast every lease.
    pub(crate) fn seconds(self) -> u32 {
        seconds(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_and_has_its_margin() {
        for (ms, expected) in [(100, 6), (1000, 6), (1001, 7), (10_000, 15), (86_400_000, 86_405)] {
            assert_eq!(seconds(Duration::from_millis(ms)), expected, "{ms} ms");
        }
    }
}
