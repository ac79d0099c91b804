//! The events of recipes: jobs that run once per slot, leaders, and the records that both stand on.

use serde::{Deserialize, Serialize};

use super::text::Text;

/// A request for one slot of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotAsk {
    /// The job's name.
    pub job: Text,
    /// The slot.
    pub slot: u64,
    /// Whether a slot whose end is not known is to be run again: at least once, and not at most once.
    pub again: bool,
}

/// The slot has run, or is skipped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotAnswer {
    /// Whether it has run in this call.
    pub ran: bool,
    /// The slot that was begun last, as far as the caller was told.
    pub latest: u64,
}

/// A job at work, as the resource saw it that it works on; written down by the resource, in the order in which it admits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The call for the slot.
    pub id: Text,
    /// The job's name.
    pub job: Text,
    /// The slot.
    pub slot: u64,
    /// The fencing token that was shown.
    pub token: u64,
    /// Whether it was admitted.
    pub accepted: bool,
}

/// The answer of a process that was asked whether it leads, and the instant before which it had not been asked. It had answered by the
/// event's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lead {
    /// The election's name.
    pub election: Text,
    /// The process that answered.
    pub leader: Text,
    /// The number of its term; nothing if it does not lead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Before this instant the question had not been put.
    pub after: u64,
    /// The way in which it was asked: its `state`, its `body` that ran, or its `readyz`.
    pub by: Text,
}

/// A record, as the server told it to somebody without the lock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordSeen {
    /// The name of the mutex beside which it is.
    pub res: Text,
    /// The token of its latest holder.
    pub term: u64,
    /// The token under which its data was written, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// Before this instant the question had not been sent; the answer had come by the event's time.
    pub after: u64,
}
