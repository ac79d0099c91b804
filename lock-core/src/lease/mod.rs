//! Leases: how long a grant lives, how it is renewed, and how its holder learns that it is gone.
//!
//! [`state`] is the pure state machine, [`keeper`] the one task per client that drives it, [`reaper`] the one task that
//! finishes releases and cancellations in the background, and [`Lease`] what a guard shows of all that.

mod background;
mod ended;
mod expires_within;
mod grant;
mod guard;

pub(crate) mod keeper;
mod lost;
pub(crate) mod reaper;
mod runtime;
pub mod state;
mod table;
mod work;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use ended::{Ended, Ending};
pub use expires_within::ExpiresWithin;
pub(crate) use grant::LiveGrant;
pub use guard::Lease;
pub use lost::Lost;
pub use work::WorkError;
pub(crate) use work::{drop_when, scoped};

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
