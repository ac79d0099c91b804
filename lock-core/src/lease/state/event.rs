//! The events that a lease's state machine takes, and the actions that it answers with.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::loss::LossReason;
use crate::options::LeaseOptions;

/// An input of a lease's state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time passed.
    Tick,
    /// A renewal that was sent at `sent_at` was answered.
    Answer {
        /// The instant at which the renewal was sent.
        sent_at: BootInstant,
        /// The server's answer.
        answer: Answer,
    },
    /// The server announced that the grant is gone.
    Notice {
        /// The instant by which it was gone.
        lost_by: BootInstant,
        /// The reason.
        reason: LossReason,
    },
    /// The server has refused what it lets only the latest holder do: the grant is gone, or a newer one has been before it. It is given
    /// up, also at the server.
    Refused,
    /// The server may have forgotten the grant: verify it now.
    Suspect,
    /// The holder releases the lock; from now on nothing is renewed and no loss is signalled.
    Release,
    /// Somebody else who holds by the same grant asks for these options: the strongest of all count from now on. The longest hold
    /// stays as it was granted.
    Require(LeaseOptions),
    /// The lock is a call's that is not over yet: after the renewal that is due next, nothing is renewed by choice until
    /// [`Unattend`](Event::Unattend). There may be several such calls at once.
    Attend,
    /// Such a call is over. After the last of them the lease is renewed by choice again, if it was before.
    Unattend,
    /// The holder asks for one TTL from now on, once.
    Prolong,
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
        /// The time that the server grants, from the instant of sending.
        valid_for: Duration,
        /// The time that was asked for.
        asked: Duration,
    },
    /// Still there, not known to be extended.
    Held,
    /// Gone.
    Lost(LossReason),
    /// Nothing known.
    Unknown,
}

impl Answer {
    /// The answer of a server that was asked for `asked` and keeps the grant for `valid_for`: all of it, or a part.
    #[must_use]
    pub fn kept(valid_for: Duration, asked: Duration) -> Self {
        if valid_for < asked { Self::Part { valid_for, asked } } else { Self::Renewed(valid_for) }
    }
}

/// An output of a lease's state machine: the things to do now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actions {
    /// Send a renewal with this TTL now.
    pub renew: Option<Duration>,
    /// Tell the holder that the lock is lost. Comes at most once in a lease's life.
    pub lost: Option<LossReason>,
    /// Delete the entry at the server when it can be reached.
    pub discard: bool,
    /// The instant at which to come back with a [`Event::Tick`]; `None` if never.
    pub wake_at: Option<BootInstant>,
}
