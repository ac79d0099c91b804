//! What an operator sees of a lock.

use std::time::Duration;

use serde::Serialize;

use crate::owner::{GrantId, Owner};

/// The state of one lock, as the server sees it at one instant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// Who holds it; empty if it is free.
    pub holders: Vec<Holder>,
    /// Who waits, first in line first.
    pub waiters: Vec<Waiter>,
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Holder {
    /// The grant, as [`force_release`](crate::Mutex::force_release) takes it; `None` for a client of another library.
    pub grant: Option<GrantId>,
    /// Who holds it; `None` for a client of another library.
    pub owner: Option<Owner>,
    /// The grant's token.
    pub token: Option<u64>,
    /// Permits held; 1 for every kind but the semaphore.
    pub permits: u32,
    /// Whether others may hold it too (a reader, a permit).
    pub shared: bool,
    /// How long it has been held, by the server's clock.
    pub held_for: Option<Duration>,
    /// When the server frees it if it hears nothing more; `None` if never.
    pub expires_in: Option<Duration>,
}

/// One request in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiter {
    /// The identity of the attempt.
    pub attempt: GrantId,
    /// Who waits.
    pub owner: Option<Owner>,
    /// Permits asked for; 1 for every kind but the semaphore.
    pub permits: u32,
    /// How long it has been waiting, by the server's clock.
    pub waiting_for: Option<Duration>,
}

impl Holder {
    /// A holder of which nothing is known but that it holds; backends fill in what they know.
    #[must_use]
    pub const fn unknown() -> Self {
        Self { grant: None, owner: None, token: None, permits: 1, shared: false, held_for: None, expires_in: None }
    }
}

impl Waiter {
    /// A waiter of which only the attempt is known.
    #[must_use]
    pub const fn new(attempt: GrantId) -> Self {
        Self { attempt, owner: None, permits: 1, waiting_for: None }
    }
}

impl Inspection {
    /// Whether nobody holds the lock.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.holders.is_empty()
    }
}
