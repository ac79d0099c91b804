//! The events of a machine: what is asked of the server for waiters, and what it answers.

use lock_core::GrantId;
use lock_core::clock::BootInstant;

use super::{Granted, KnownHolder, Pause};

/// The reply to a waiter that the server put into the queue.
#[derive(Debug, Clone, Copy)]
pub struct Enqueued {
    /// The instant at which the request was sent.
    pub sent_at: BootInstant,
    /// The number of its place.
    pub ticket: u64,
    /// Whether the server knew that this client waits.
    pub known: bool,
    /// The time to ask again.
    pub pause: Pause,
    /// The last token that was given.
    pub last_token: u64,
}

/// A heartbeat that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueHeartbeat<L> {
    /// The number by which its reply is known.
    pub number: u64,
    /// The lock that it is about.
    pub lock: L,
    /// Of waiters; none if it only goes on where another script stopped.
    pub nonces: Vec<GrantId>,
    /// Whether nothing but a sign of life is expected: it has one waiter, and the last answer had no news.
    pub quiet: bool,
    /// The holder whose lease lasts until the next heartbeat at least, if that is known.
    pub holder: Option<KnownHolder>,
}

/// The answer to a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// The instant at which the heartbeat was sent.
    pub sent_at: BootInstant,
    /// Whether the server knew that this client waits.
    pub known: bool,
    /// The time to ask again.
    pub pause: Pause,
    /// The last token that was given, if it was asked for.
    pub last_token: Option<u64>,
    /// For each nonce that was asked for: whether it is in the queue.
    pub queued: Vec<bool>,
    /// The holder of the lock, if that was told.
    pub holder: Option<KnownHolder>,
    /// The grants of this client: of a mutex the one grant, of other kinds those that were asked for.
    pub grants: Vec<Granted>,
}
