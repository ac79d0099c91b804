//! What a lease's state machine is told, and what it answers.

use std::time::Duration;

use super::LossReason;
use crate::clock::BootInstant;
use crate::options::LeaseOptions;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time passed.
    Tick,
    /// A renewal that was sent at `sent_at` was answered.
    Answer {
        /// When the renewal was sent.
        sent_at: BootInstant,
        /// What the server said.
        answer: Answer,
    },
    /// The server announced that the grant is gone.
    Notice(LossReason),
    /// The server may have forgotten the grant: verify it now.
    Suspect,
    /// The holder gives the lock back; from now on nothing is renewed and no loss is signalled.
    Release,
    /// Somebody else who holds by the same grant has these wishes: the strongest of all count from now on. The longest hold
    /// stays as it was granted.
    Require(LeaseOptions),
    /// A release has found that the grant was gone already: it was lost while it was held.
    NotHeld(LossReason),
}

/// The server's answer to a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Extended by this much from the instant of sending.
    Renewed(Duration),
    /// Extended by a part of what was asked for: the server keeps the rest too, if it is asked again in time.
    Part {
        /// By how much, from the instant of sending.
        valid_for: Duration,
        /// What was asked for.
        asked: Duration,
    },
    /// Still there, not extended.
    Held,
    /// Gone.
    Lost(LossReason),
    /// Nothing known.
    Unknown,
}

impl Answer {
    /// What it means that the server keeps a grant for `valid_for` when it was asked for `asked`.
    #[must_use]
    pub fn kept(valid_for: Duration, asked: Duration) -> Self {
        if valid_for < asked { Self::Part { valid_for, asked } } else { Self::Renewed(valid_for) }
    }
}

/// What is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// Send a renewal with this TTL now.
    pub renew: Option<Duration>,
    /// Tell the holder that the lock is lost. Comes at most once in a lease's life.
    pub lost: Option<LossReason>,
    /// Delete the entry at the server when it can be reached.
    pub discard: bool,
    /// When to come back with a [`Event::Tick`]; `None` if never.
    pub wake_at: Option<BootInstant>,
}
