//! Faults of a server's wall clock.

use serde::{Deserialize, Serialize};

/// A step of a wall clock, until it is healed: then it steps back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClockFault {
    /// The milliseconds by which the clock is ahead of the machine's; negative if it is behind.
    pub ahead_ms: i64,
}

impl ClockFault {
    /// A clock that is so many milliseconds ahead, or behind.
    #[must_use]
    pub const fn ahead_by_ms(ahead_ms: i64) -> Self {
        Self { ahead_ms }
    }
}
