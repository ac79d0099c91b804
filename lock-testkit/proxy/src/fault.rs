//! Faults of a link, as values.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Something that goes wrong on a link: what, in which direction, and when.
///
/// A value: it can be written down, read again and injected once more with the same effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkFault {
    /// The disturbance itself.
    pub toxic: Toxic,
    /// The direction that it hits.
    pub direction: Direction,
    /// The fault's beginning.
    pub trigger: Trigger,
    /// The seed of its chance (the jitter of a delay).
    pub seed: u64,
}

/// The disturbance that a fault brings about.
///
/// [`Hold`](Toxic::Hold), [`Stall`](Toxic::Stall), [`Blackhole`](Toxic::Blackhole), [`Throttle`](Toxic::Throttle) and
/// [`Split`](Toxic::Split) last: once triggered on a connection, they go on there until healed. The others hit one frame
/// if they were triggered by a request, and every frame otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Toxic {
    /// Each frame takes this much longer, and up to `jitter` more. Frames stay in order.
    Delay {
        /// The least delay.
        by: Duration,
        /// The most that chance adds.
        jitter: Duration,
    },
    /// A pulled cable: nothing gets through, not even that a connection was opened or has ended. The sender believes it
    /// was sent, and all of it arrives in order once healed.
    Hold,
    /// The receiver reads no more: the sender's buffers fill. All of it arrives once healed.
    Stall,
    /// Drops everything that is sent. Connections that lost something are reset when it is healed: they cannot go on.
    Blackhole,
    /// The connection ends (FIN) after so many bytes of the frame, and before its last byte in any case: a reset could overtake them.
    CutAfter {
        /// The number of the frame's bytes that get through.
        bytes: usize,
    },
    /// The connection is closed (FIN) instead of passing the frame; every present connection if triggered at once.
    Fin,
    /// The connection is reset (RST) instead of passing the frame; every present connection if triggered at once.
    Reset,
    /// Nobody listens: new connections are refused. Present ones go on. Always from the injection on.
    Refuse,
    /// No more than so many bytes get through in a second.
    Throttle {
        /// The bytes per second.
        rate: u32,
    },
    /// Every byte travels by itself.
    Split,
    /// The frame disappears, and what follows passes: an answer or an event that never comes, on a link that is healthy. Where
    /// replies come in turn (Redis, memcached), the client takes the next one for it.
    Swallow,
    /// The request reaches the server twice; the second reply is swallowed. Whatever the direction.
    Duplicate,
    /// The request does not reach the server; the client gets this refusal instead: an error's text for Redis
    /// (`LOADING Redis is loading`) and memcached (`SERVER_ERROR out of memory`), a code for ZooKeeper (`-4`). Whatever
    /// the direction.
    Answer {
        /// The refusal.
        text: String,
    },
}

/// The direction that is hit. A fault that a request triggers hits its reply if the direction is
/// [`ToClient`](Direction::ToClient), otherwise the request itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Replies, and whatever the server says by itself.
    ToClient,
    /// Both directions.
    Both,
}

/// The beginning of a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Trigger {
    /// With its injection.
    Now,
    /// Begins when so many bytes have passed in its direction, over all connections since its injection.
    AfterBytes(u64),
    /// With the `nth` request, from 1, that contains this text, over all connections since its injection. Every request
    /// contains the empty text.
    OnRequest {
        /// The number of the request among those that count, from 1.
        nth: u64,
        /// The text that it contains.
        containing: String,
    },
    /// With the `nth` frame, from 1, that contains this text and that the server sends without being asked (a message of a
    /// channel, a watch event), over all connections since its injection. Hits that frame, whatever the direction.
    OnPush {
        /// The number of the push among those that count, from 1.
        nth: u64,
        /// The text that it contains.
        containing: String,
    },
}

impl LinkFault {
    /// Makes a fault that begins with its injection, with the seed 0.
    #[must_use]
    pub fn new(toxic: Toxic, direction: Direction) -> Self {
        Self { toxic, direction, trigger: Trigger::Now, seed: 0 }
    }

    /// Begins with another trigger.
    #[must_use]
    pub fn on(mut self, trigger: Trigger) -> Self {
        self.trigger = trigger;
        self
    }

    /// Begins with the `nth` request that contains this text.
    #[must_use]
    pub fn on_request(self, nth: u64, containing: impl Into<String>) -> Self {
        self.on(Trigger::OnRequest { nth, containing: containing.into() })
    }

    /// Begins with the `nth` frame that the server sends without being asked and that contains this text.
    #[must_use]
    pub fn on_push(self, nth: u64, containing: impl Into<String>) -> Self {
        self.on(Trigger::OnPush { nth, containing: containing.into() })
    }

    /// Draws from another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

/// The least number of times in a second that a throttled link lets something through.
const PORTIONS: u32 = 50;

impl Toxic {
    /// Whether it goes on, once triggered on a connection.
    pub(super) fn lasts(&self) -> bool {
        matches!(self, Self::Hold | Self::Stall | Self::Blackhole | Self::Throttle { .. } | Self::Split)
    }

    /// Whether it is nothing that can happen to replies.
    pub(super) fn is_about_requests(&self) -> bool {
        matches!(self, Self::Duplicate | Self::Answer { .. })
    }

    /// Returns the size of the portions in which something is sent at most, and the time that each byte of them takes.
    pub(super) fn pace(&self) -> Option<(usize, Duration)> {
        match *self {
            Self::Throttle { rate } => {
                let portion = (rate / PORTIONS).max(1);
                Some((usize::try_from(portion).unwrap_or(usize::MAX), Duration::from_secs(1) / rate.max(1)))
            }
            // So short a pause is what keeps two bytes from travelling together.
            Self::Split => Some((1, Duration::from_micros(50))),
            _ => None,
        }
    }

    /// Whether it ends connections.
    pub(super) fn ends_connections(&self) -> bool {
        matches!(self, Self::CutAfter { .. } | Self::Fin | Self::Reset)
    }
}

impl Direction {
    pub(super) fn covers(self, other: Self) -> bool {
        self == Self::Both || self == other
    }
}

impl fmt::Display for LinkFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}, {:?}, seed {}", self.toxic, self.direction, self.trigger, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_can_be_written_down() {
        let jitter = Toxic::Delay { by: Duration::from_millis(3), jitter: Duration::from_millis(2) };
        let fault = LinkFault::new(jitter, Direction::ToClient).on_request(2, "EVALSHA").with_seed(7);
        let written = serde_json::to_string(&fault).unwrap();
        assert_eq!(serde_json::from_str::<LinkFault>(&written).unwrap(), fault);
    }
}
