//! The server: one item, the epoch, and what is done with them. Each request is carried out in one step.

use lock_memcached::machine::Epoch;

use super::{CLOSED_FOR, LONGEST, MARGIN, Mutant, OPEN_FOR, TTL, since_1970};

/// Number of an attempt.
pub(super) type Nonce = u8;

/// The last CAS number before anybody wants the lock: as many are given after a restart until a claim counts.
pub(super) const FIRST_CAS: u8 = 3;

/// One memcached server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    /// Seconds.
    pub(super) now: u8,
    /// The number of its restarts.
    pub(super) life: u8,
    /// The last CAS number.
    pub(super) cas: u8,
    pub(super) item: Option<Item>,
    /// The epoch, and when its item was stored.
    pub(super) epoch: Option<(Epoch, u8)>,
}

/// The lock's item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) nonce: Nonce,
    cas: u8,
    pub(super) ends: u8,
}

/// An item that is to be changed while it is unchanged: its attempt, and the CAS number with the life in which it was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Own {
    pub(super) nonce: Nonce,
    pub(super) cas: u8,
    pub(super) life: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// `unsure` says whether the item may be the attempt's own already.
    Claim {
        nonce: Nonce,
        unsure: bool,
    },
    HandOver {
        own: Own,
        to: Nonce,
    },
}

/// The epoch as it was read, and the seconds that were left of it.
pub(super) type SeenEpoch = Option<(Epoch, i64)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// The CAS number and the life, if the item is the attempt's.
    Claimed {
        won: Option<(u8, u8)>,
        epoch: SeenEpoch,
    },
    HandedOver {
        done: Option<(u8, u8)>,
        epoch: SeenEpoch,
    },
}

impl Server {
    pub(super) fn new() -> Self {
        let mut epoch = Epoch::new(LONGEST, since_1970(0));
        epoch.open = true;
        Self { now: 0, life: 0, cas: FIRST_CAS, item: None, epoch: Some((epoch, 0)) }
    }

    pub(super) fn holds(&self, nonce: Nonce) -> bool {
        self.item.is_some_and(|item| item.nonce == nonce)
    }

    pub(super) fn tick(&mut self) {
        self.now += 1;
        self.item = self.item.filter(|item| self.now < item.ends);
    }

    /// Everything is forgotten, and CAS numbers begin anew.
    pub(super) fn restart(&mut self) {
        *self = Self { now: self.now, life: self.life + 1, cas: 0, item: None, epoch: None };
    }

    pub(super) fn carry_out(&mut self, request: Request, mutant: Option<Mutant>) -> Reply {
        match request {
            Request::Claim { nonce, unsure } => {
                let is_own = unsure && self.item.is_some_and(|item| item.nonce == nonce);
                let won = (self.item.is_none() || is_own).then(|| self.store(nonce));
                Reply::Claimed { won, epoch: self.seen_epoch() }
            }
            Request::HandOver { own, to } => {
                let blind = mutant == Some(Mutant::BlindHandOver) && self.item.is_some();
                let done = (blind || self.is_unchanged(own, mutant)).then(|| self.store(to));
                Reply::HandedOver { done, epoch: self.seen_epoch() }
            }
        }
    }

    /// Releases what is unchanged; whether it was.
    pub(super) fn release(&mut self, own: Own, mutant: Option<Mutant>) -> bool {
        let is_there = self.is_unchanged(own, mutant);
        self.item = self.item.filter(|_| !is_there);
        is_there
    }

    /// Looks for what an attempt may have, and deletes it.
    pub(super) fn undo(&mut self, nonce: Nonce) {
        self.item = self.item.filter(|item| item.nonce != nonce);
    }

    /// Whether the item is the one that is meant. A number of another life is not believed: the item is read first.
    fn is_unchanged(&self, own: Own, mutant: Option<Mutant>) -> bool {
        let knows = own.life == self.life || mutant == Some(Mutant::NumberOfAnotherLife);
        self.item.is_some_and(|item| if knows { item.cas == own.cas } else { item.nonce == own.nonce })
    }

    fn store(&mut self, nonce: Nonce) -> (u8, u8) {
        self.cas += 1;
        self.item = Some(Item { nonce, cas: self.cas, ends: self.now + TTL + MARGIN });
        (self.cas, self.life)
    }

    /// The epoch, and what is left of its item.
    pub(super) fn seen_epoch(&self) -> SeenEpoch {
        let (epoch, since) = self.epoch?;
        let left = if epoch.open { OPEN_FOR } else { CLOSED_FOR };
        let gone = if epoch.open { self.now } else { self.now - since };
        Some((epoch, left - i64::from(gone)))
    }
}
