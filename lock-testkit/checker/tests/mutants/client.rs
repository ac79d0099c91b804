//! A client of the lock under test, and what travels between it and the store.

use lock_testkit_checker::history::event::{Kind, Text};

use crate::store::Entry;

/// The requests of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    Ask { wish: Entry, waits: bool, sent: u64 },
    Renew { wish: Entry, sent: u64 },
    Release { grant: u64 },
    Cancel { grant: u64 },
    SetExpiry { grant: u64 },
}

/// The replies of a store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    Granted { grant: u64, token: u64, sent: u64 },
    Queued { grant: u64 },
    Refused { grant: u64 },
    Pushed { grant: u64 },
    Renewed { grant: u64, sent: u64, there: bool },
    Released { grant: u64, there: bool },
    Cancelled { grant: u64 },
}

/// A timer that a client has set, about one grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    AskAgain,
    GiveUp,
    GiveUpAtLast,
    Renew,
    Deadline,
    Check,
    Read,
    Write,
    Enter,
    Leave,
    End,
    ReleaseAgain,
    CancelAgain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Asking,
    GivingUp,
    Held,
    Lost,
    Releasing,
}

/// One acquisition.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: Text,
    pub(crate) grant: u64,
    pub(crate) kind: Kind,
    pub(crate) permits: u32,
    pub(crate) waits: bool,
    pub(crate) state: State,
    /// Whether the last request was answered.
    pub(crate) heard: bool,
    pub(crate) deadline: u64,
    pub(crate) token: u64,
    pub(crate) read: Option<u64>,
    pub(crate) inner: Option<Text>,
}

pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) latency: u64,
    /// The time by which its wall clock is ahead.
    pub(crate) skew: u64,
    pub(crate) paused_until: u64,
    /// The time until which nothing reaches it.
    pub(crate) cut_until: u64,
    /// Whether nothing leaves it either.
    pub(crate) cut_both: bool,
    /// It dies when it is granted the lock.
    pub(crate) doomed: bool,
    pub(crate) dead: bool,
    pub(crate) claim: Option<Claim>,
    /// Grants that it still has to take back.
    pub(crate) chores: Vec<u64>,
}

impl Client {
    pub(crate) fn new(place: usize, latency: u64, skew: u64) -> Self {
        Self {
            name: format!("c{place}"),
            latency,
            skew,
            paused_until: 0,
            cut_until: 0,
            cut_both: false,
            doomed: false,
            dead: false,
            claim: None,
            chores: Vec::new(),
        }
    }

    /// Its present claim, if it is the one with this grant and in this state.
    pub(crate) fn claim_in(&mut self, grant: u64, state: State) -> Option<&mut Claim> {
        self.claim.as_mut().filter(|claim| claim.grant == grant && claim.state == state)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.dead || self.claim.is_none() && self.chores.is_empty()
    }
}
