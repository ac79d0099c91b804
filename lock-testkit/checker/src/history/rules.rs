//! The rules by which a history is judged.

use serde::{Deserialize, Serialize};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The backend's promises, and how much a run has to contain. All times are in nanoseconds.
///
/// A history carries its rules in its first event; the defaults are those of a backend with renewal and tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rules {
    /// Grants carry tokens that grow (F1-F3, F5).
    pub fencing: bool,
    /// Records outlive every fault of the run (REC).
    pub records: bool,
    /// Waiters are served in the order in which they came (P5).
    pub fifo: bool,
    /// Leases are renewed while they are held: one that ends without a cause is a bug (E1).
    pub renewed: bool,
    /// The rates of two clocks may differ by this much, in millionths.
    pub clock_rate: u64,
    /// The granularity of a server's expiry.
    pub granularity: u64,
    /// The time that one request may take.
    pub op_timeout: u64,
    /// The time after which the news of a loss is late (L2).
    pub notice: u64,
    /// The time for which a lock may be free while somebody waits (P1).
    pub hand_over: u64,
    /// The time, beyond the leases, until all goes on after a fault (P2).
    pub recovery: u64,
    /// The time until a waiter has its place in the queue (P2, P5); a wait that is no longer may be over before it is answered (P4).
    pub enqueue: u64,
    /// The number of waiters that one release may wake up (P6).
    pub herd: u64,
    /// Whether a try may be refused because of another one that is on its way, and is refused as well (P4): with recipes of
    /// several requests, such as a line of nodes or slots that are taken one by one.
    pub tries_meet: bool,
    /// Without this much the run says nothing.
    pub least: Least,
}

/// The least that a run has to contain to say anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Least {
    /// Grants.
    pub grants: usize,
    /// Grants of a lock that somebody else held when it was asked for.
    pub contended: usize,
    /// Grants of several locks at once.
    pub groups: usize,
    /// Faults that are proven to have been applied.
    pub faults: usize,
    /// Looks at what is left at the server.
    pub residues: usize,
    /// Slots of jobs that were worked on.
    pub slots: usize,
    /// Terms in which somebody was seen to lead.
    pub terms: usize,
    /// Faults after which another process was seen to lead than before.
    #[serde(default)]
    pub rounds: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            fencing: true,
            records: true,
            fifo: false,
            renewed: true,
            clock_rate: 10_000,
            granularity: 2 * MILLISECOND,
            op_timeout: 2 * SECOND,
            notice: 100 * MILLISECOND,
            hand_over: SECOND,
            recovery: 2 * SECOND,
            enqueue: 50 * MILLISECOND,
            herd: 1,
            tries_meet: false,
            least: Least::default(),
        }
    }
}

impl Default for Least {
    fn default() -> Self {
        Self { grants: 1, contended: 1, groups: 0, faults: 1, residues: 0, slots: 0, terms: 0, rounds: 0 }
    }
}

impl Rules {
    /// Returns how long a server may keep a grant of this TTL, by the holder's clock.
    #[must_use]
    pub fn longest(&self, ttl: u64) -> u64 {
        ttl.saturating_add(self.margin(ttl))
    }

    /// Returns how long a holder may believe in a grant of this TTL, from the sending of its request.
    #[must_use]
    pub fn shortest(&self, ttl: u64) -> u64 {
        ttl.saturating_sub(self.margin(ttl))
    }

    fn margin(&self, ttl: u64) -> u64 {
        (ttl / 1_000_000).saturating_mul(self.clock_rate).saturating_add(self.granularity)
    }
}
