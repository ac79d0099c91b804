//! The reasons why locks are lost.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a lock was lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ended before a renewal was confirmed.
    Expired,
    /// The session that carried the lock ended.
    SessionExpired,
    /// The entry at the server is gone, or is another's.
    Taken,
    /// An operator freed it.
    ForceReleased {
        /// The operator that freed the lock.
        by: String,
        /// The operator's reason.
        reason: String,
    },
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("the lease ended before a renewal was confirmed"),
            Self::SessionExpired => f.write_str("the session ended"),
            Self::Taken => f.write_str("the entry at the server is gone or another's"),
            Self::ForceReleased { by, reason } => write!(f, "freed by {by}: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_says_why() {
        let by_force = LossReason::ForceReleased { by: "ada".into(), reason: "stuck".into() };
        assert_eq!(by_force.to_string(), "freed by ada: stuck");
        assert_eq!(LossReason::Expired.to_string(), "the lease ended before a renewal was confirmed");
        assert_eq!(LossReason::SessionExpired.to_string(), "the session ended");
        assert_eq!(LossReason::Taken.to_string(), "the entry at the server is gone or another's");
    }
}
