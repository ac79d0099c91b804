//! The requests of a sequence.

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::scripts::{HOLDERS, MUTEX, Scripts};

/// A kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Semaphore { limit: u32 },
}

impl Kind {
    pub(crate) fn any(rng: &mut StdRng) -> Self {
        let limit = rng.random_range(1..5);
        *[Self::Mutex, Self::Mutex, Self::Reentrant, Self::ReadWrite, Self::Semaphore { limit }].choose(rng).unwrap()
    }

    pub(crate) fn scripts(self) -> &'static Scripts {
        if self == Self::Mutex { &MUTEX } else { &HOLDERS }
    }

    /// Returns the mode of a request, as the scripts write it.
    pub(crate) fn mode(self, rng: &mut StdRng) -> String {
        match self {
            Self::Mutex => String::new(),
            Self::Reentrant => format!("O{:032x}", rng.random_range(0..3)),
            Self::ReadWrite => (*["R", "R", "W"].choose(rng).unwrap()).to_owned(),
            // Now and then one that is of another opinion.
            Self::Semaphore { limit } if rng.random_ratio(1, 30) => format!("P1/{}", limit + 1),
            Self::Semaphore { limit } => format!("P{}/{limit}", rng.random_range(1..=limit)),
        }
    }

    /// Returns a mode that a grant of this one can become.
    pub(crate) fn changed(self, mode: &str, rng: &mut StdRng) -> String {
        match (self, mode) {
            (Self::ReadWrite, "W") => "R".to_owned(),
            (Self::Semaphore { limit }, _) => format!("P{}/{limit}", rng.random_range(1..=limit)),
            _ => mode.to_owned(),
        }
    }
}

/// One attempt.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) nonce: String,
    pub(crate) client: String,
    pub(crate) ttl: u64,
    pub(crate) mode: String,
    /// That of its place in the queue, if it was ever told one.
    pub(crate) ticket: String,
}

impl Request {
    pub(crate) fn any(kind: Kind, rng: &mut StdRng) -> Self {
        let nonce = format!("{:032x}", rng.random::<u128>());
        let client = format!("{:016x}", rng.random_range(0..4));
        let ttl = *[1, 100, 1000, 2000, 5000, 20_000].choose(rng).unwrap();
        Self { nonce, client, ttl, mode: kind.mode(rng), ticket: String::new() }
    }

    /// The time for which what is handed over is kept for it.
    pub(crate) fn claim(&self) -> u64 {
        // The shortest TTL that a client accepts has three digits.
        self.ttl.clamp(100, 2000)
    }
}
