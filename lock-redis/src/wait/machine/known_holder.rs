//! The holder of a lock, as far as a waiter has been told of it: while its lease is known to last, nobody asks for its end.

use std::time::Duration;

use lock_core::clock::BootInstant;

use super::Pause;

/// The length of the part of the holder's nonce by which it is known again.
const BEGINNING: usize = 16;

/// The holder of a lock, and the instant until which it holds at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHolder {
    nonce: [u8; BEGINNING],
    until: BootInstant,
}

impl KnownHolder {
    /// The holder whose nonce begins like this, and whose lease ends so long after the request was sent that has found it.
    pub(crate) fn new(nonce: &str, sent_at: BootInstant, ends_in: Duration) -> Option<Self> {
        Some(Self { nonce: nonce.as_bytes().try_into().ok()?, until: sent_at.plus(ends_in) })
    }

    /// The beginning of its nonce.
    pub(crate) fn beginning(&self) -> &str {
        // It was made of a text.
        std::str::from_utf8(&self.nonce).unwrap_or_default()
    }

    /// Whether its lease lasts at least until this instant. A lease may be extended, and never ends earlier while the same
    /// grant holds the lock.
    pub(crate) fn lasts_until(&self, at: BootInstant) -> bool {
        self.until >= at
    }

    /// The time to ask again, for an answer that found this holder.
    pub(crate) fn pause(&self, now: BootInstant) -> Pause {
        Pause::Until(self.until.since(now))
    }
}
