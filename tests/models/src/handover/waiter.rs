//! One waiter of a client, and where it stands.

use lock_memcached::machine::{HandedOver, Ticket};

use super::server::{Nonce, Own, Reply, Request};

/// One attempt after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) nonce: Nonce,
    /// The number of attempts that are left.
    pub(super) left: u8,
    pub(super) phase: Phase,
    pub(super) ticket: Option<Ticket>,
    /// The request that is under way, when it was sent, and its answer.
    pub(super) asks: Option<(Request, u8, Option<Reply>)>,
    pub(super) was_ours: bool,
    /// The second before which a request that was not answered may be carried out.
    pub(super) unsure_until: u8,
    /// Whether it has given up.
    pub(super) is_gone: bool,
    /// Whether it is kept without being polled.
    pub(super) is_still: bool,
    /// The second until which it sleeps behind others.
    pub(super) sleeps_until: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// It does not want the lock yet.
    Idle,
    /// It stands behind others.
    Behind,
    /// It is the first one, and about to try.
    First,
    /// It has asked.
    Asking,
    /// It looks again in this second at the latest.
    Pausing(u8),
    /// A holder has taken its offer.
    Handed,
    Holding {
        until: u8,
        own: Own,
    },
    /// It hands the lock to that waiter.
    HandingOver {
        to: usize,
        until: u8,
        own: Own,
    },
    /// It releases the lock, after a hand-over that came to this.
    Releasing {
        handed: HandedOver,
        own: Own,
        until: u8,
    },
    /// It looks for what it may have.
    Undoing,
    Done,
}

impl Waiter {
    pub(super) fn asks(&mut self, request: Request, now: u8) {
        self.asks = Some((request, now, None));
    }

    /// It has nothing; or, if something was not answered, it may have something yet.
    pub(super) fn ends(&mut self, now: u8) {
        self.phase = match self.left {
            _ if now < self.unsure_until => Phase::Undoing,
            0 => Phase::Done,
            _ => Phase::Idle,
        };
        if self.phase != Phase::Undoing {
            self.unsure_until = 0;
        }
    }

    /// The item as long as it believes to hold the lock, and until when.
    pub(super) fn believes(&self, now: u8) -> Option<(Own, u8)> {
        match self.phase {
            Phase::Holding { until, own } if now < until => Some((own, until)),
            _ => None,
        }
    }

    /// Whether it knows that it has nothing at the server.
    pub(super) fn has_nothing(&self, now: u8) -> bool {
        let idle = matches!(self.phase, Phase::Idle | Phase::Behind | Phase::First | Phase::Pausing(_) | Phase::Done);
        idle && now >= self.unsure_until
    }

    /// The item that it knows.
    pub(super) fn own(&self) -> Option<Own> {
        match self.phase {
            Phase::Holding { own, .. } | Phase::HandingOver { own, .. } | Phase::Releasing { own, .. } => Some(own),
            _ => None,
        }
    }

    /// Whether it waits, and may give up.
    pub(super) fn waits(&self) -> bool {
        let waits =
            matches!(self.phase, Phase::Behind | Phase::First | Phase::Asking | Phase::Pausing(_) | Phase::Handed);
        waits && !self.is_gone
    }
}
