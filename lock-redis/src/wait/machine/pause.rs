//! The pause before a waiter asks again.

use std::time::Duration;

/// The time to ask again, as the server tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// At once: there is more to do than one run of a script may.
    None,
    /// After this time, when the holder's lease ends.
    Until(Duration),
    /// The usual pause: there is no holder with a lease.
    Regular,
    /// A foreign client holds a shared key, and this client's waiter is the first: when it releases the key.
    Foreign,
    /// As `Foreign`, but the key is left free for foreign clients for so long.
    Free(Duration),
}

impl Pause {
    /// As `scripts/heartbeat.lua` tells it.
    pub(crate) fn of(ms: i64) -> Self {
        match u64::try_from(ms) {
            Ok(ms) => Self::Until(Duration::from_millis(ms)),
            Err(_) if ms == -3 => Self::None,
            Err(_) if ms == -4 => Self::Foreign,
            Err(_) if ms <= -1000 => Self::Free(Duration::from_millis(ms.unsigned_abs() - 1000)),
            Err(_) => Self::Regular,
        }
    }
}
