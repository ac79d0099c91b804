//! The server: one run of a script, or one command of a pipeline, as one step.

use super::Mutant;
use super::wire::{Answer, Request, Sent};

/// The locks, and what was ever done about each attempt.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    locks: Vec<Option<Grant>>,
    /// Whether each attempt was ever told that somebody else has its lock.
    denied: Vec<bool>,
    /// Whether each attempt was ever released or cancelled.
    ended: Vec<bool>,
    /// Whether an attempt was ever acquired after that.
    pub(super) was_overtaken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Grant {
    /// The attempt that holds the lock.
    at: usize,
    /// Whether it came by a connection that had ended and is not killed, and was not renewed since.
    is_late: bool,
}

impl Server {
    /// A server on which these locks are free.
    pub(super) fn new(locks: &[u8]) -> Self {
        let never = vec![false; locks.len()];
        Self { locks: vec![None; locks.len()], denied: never.clone(), ended: never, was_overtaken: false }
    }

    /// Carries out a request for some of these locks: of a batch, `most` acquisitions more, but for those that are refused.
    pub(super) fn carry_out(
        &mut self,
        (sent, is_late): (&mut Sent, bool),
        locks: &[u8],
        most: usize,
        refused: &[usize],
        mutant: Option<Mutant>,
    ) {
        if let Request::End(at) = sent.request {
            self.ended[at] = true;
            self.locks.iter_mut().for_each(|lock| _ = lock.take_if(|grant| grant.at == at));
        }
        let next: Vec<_> = sent.left().iter().take(most).copied().collect();
        for at in next {
            let is_refused = refused.contains(&at);
            let answer = if is_refused { Answer::Refused } else { self.acquire(at, locks[at], is_late, mutant) };
            sent.answers.push(answer);
        }
    }

    /// Idempotent by the nonce.
    fn acquire(&mut self, at: usize, lock: u8, is_late: bool, mutant: Option<Mutant>) -> Answer {
        self.was_overtaken |= self.ended[at];
        let lock = &mut self.locks[usize::from(lock)];
        if lock.as_ref().is_some_and(|grant| grant.at != at || mutant == Some(Mutant::ForgottenNonce)) {
            self.denied[at] = true;
            return Answer::Held;
        }
        let was_late = lock.as_ref().is_none_or(|grant| grant.is_late);
        *lock = Some(Grant { at, is_late: is_late && was_late });
        Answer::Granted
    }

    /// The holder of a lock renews it.
    pub(super) fn renew(&mut self, at: usize) {
        let mut own = self.locks.iter_mut().flatten().filter(|grant| grant.at == at);
        if let Some(grant) = own.next() {
            grant.is_late = false;
        }
    }

    /// Ends the grants that came by connections which have ended: they have expired.
    pub(super) fn expire(&mut self) {
        self.locks.iter_mut().for_each(|lock| _ = lock.take_if(|grant| grant.is_late));
    }

    pub(super) fn holds(&self, at: usize) -> bool {
        self.locks.iter().flatten().any(|grant| grant.at == at)
    }

    /// Whether this attempt was ever told that somebody else has its lock.
    pub(super) fn has_denied(&self, at: usize) -> bool {
        self.denied[at]
    }
}
