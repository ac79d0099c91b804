//! The requests of a sequence.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::model::{Mode, Request};
use crate::scripts::{HOLDERS, MUTEX, Scripts};

/// The prefix of the push channels.
pub(crate) const CHANNELS: &str = "c:";

pub(crate) const CLIENTS: [&str; 4] = ["000000000000000a", "000000000000000b", "000000000000000c", "000000000000000d"];

/// A kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore { limit: u64 },
}

impl Kind {
    pub(crate) fn any(rng: &mut StdRng) -> Self {
        let semaphore = Self::semaphore(rng);
        *[Self::Mutex, Self::Mutex, Self::Reentrant, Self::ReadWrite, semaphore].choose(rng).unwrap()
    }

    pub(crate) fn semaphore(rng: &mut StdRng) -> Self {
        Self::Semaphore { limit: rng.random_range(1..=5) }
    }

    pub(crate) fn scripts(self) -> &'static Scripts {
        if self == Self::Mutex { &MUTEX } else { &HOLDERS }
    }

    fn mode(self, rng: &mut StdRng) -> Mode {
        match self {
            Self::Mutex => Mode::Mutex,
            Self::Reentrant => Mode::Owner(rng.random_range(0..3)),
            Self::ReadWrite => *[Mode::Read, Mode::Read, Mode::Write].choose(rng).unwrap(),
            Self::Semaphore { limit } => Mode::Permits { permits: rng.random_range(1..=limit), limit },
        }
    }

    /// Returns a mode that a grant of this one can become.
    pub(crate) fn changed(self, mode: Mode, rng: &mut StdRng) -> Mode {
        match (self, mode) {
            (Self::ReadWrite, Mode::Write) => Mode::Read,
            (Self::Semaphore { limit }, _) => Mode::Permits { permits: rng.random_range(1..=limit), limit },
            _ => mode,
        }
    }
}

/// A request, which may be sent several times.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) request: Request,
    /// Whether it waits in the queue if it can have the lock not at once.
    pub(crate) waits: bool,
    /// That of its place in the queue, if it was ever told one.
    pub(crate) ticket: Option<u64>,
}

impl Attempt {
    pub(crate) fn any(kind: Kind, rng: &mut StdRng) -> Self {
        let nonce = format!("{:032x}", rng.random::<u128>());
        let client = (*CLIENTS.choose(rng).unwrap()).to_owned();
        let ttl = *[1, 100, 1000, 2000, 5000, 20_000, 60_000].choose(rng).unwrap();
        Self {
            request: Request { nonce, client, mode: kind.mode(rng), ttl },
            waits: rng.random_ratio(2, 3),
            ticket: None,
        }
    }
}
