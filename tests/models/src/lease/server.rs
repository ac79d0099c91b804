//! The server: the scripts of `lock-redis/src/store/scripts`, each as one step.

use super::wire::{Nonce, Push, Reply, Request};
use super::{CLAIM, LIVENESS, Mutant, TTL};

/// The lock's keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    pub(super) lock: Option<Grant>,
    pub(super) queue: Vec<Nonce>,
    /// The time for which each client still counts as alive; `None` for one that is not known to wait.
    pub(super) alive: Vec<Option<u8>>,
    pub(super) last_token: u8,
    /// Whether a token was ever no higher than one before.
    pub(super) token_went_back: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) nonce: Nonce,
    pub(super) token: u8,
    pub(super) left: u8,
    /// The grant whose request set the end.
    pub(super) extended_by: Nonce,
}

/// One request being carried out.
pub(super) struct Run<'a> {
    pub(super) server: &'a mut Server,
    pub(super) pushes: Vec<Push>,
    pub(super) mutant: Option<Mutant>,
}

impl Server {
    pub(super) fn new(clients: usize) -> Self {
        Self { lock: None, queue: Vec::new(), alive: vec![None; clients], last_token: 0, token_went_back: false }
    }

    pub(super) fn tick(&mut self) {
        self.lock =
            self.lock.take().filter(|grant| grant.left > 1).map(|grant| Grant { left: grant.left - 1, ..grant });
        for alive in self.alive.iter_mut().flatten() {
            *alive = alive.saturating_sub(1);
        }
    }

    pub(super) fn holds(&self, nonce: Nonce) -> bool {
        self.lock.as_ref().is_some_and(|grant| grant.nonce == nonce)
    }
}

impl Run<'_> {
    pub(super) fn carry_out(&mut self, request: Request) -> Reply {
        match request {
            Request::Kill => Reply::Killed,
            Request::Acquire(nonce) => self.acquire(nonce),
            Request::Heartbeat(nonce) => self.heartbeat(nonce),
            Request::Renew(nonce) => self.renew(nonce),
            Request::Release(nonce) => self.release(nonce),
            Request::Cancel(nonce) => self.cancel(nonce),
            Request::GiveBack(nonce) => {
                self.cancel(nonce);
                Reply::GivenBack
            }
        }
    }

    /// `acquire_free.lua`, and then `acquire.lua`.
    fn acquire(&mut self, nonce: Nonce) -> Reply {
        let known = !self.is(Mutant::ForgottenNonce);
        if let Some(grant) = self.server.lock.as_mut().filter(|grant| known && grant.nonce == nonce) {
            grant.left = grant.left.max(TTL);
            return Reply::Granted { token: grant.token, lasts: TTL };
        }
        if self.server.lock.is_none() && self.server.queue.is_empty() {
            return Reply::Granted { token: self.grant(nonce, TTL), lasts: TTL };
        }
        if !self.server.queue.contains(&nonce) {
            self.server.queue.push(nonce);
        }
        let is_known = self.server.alive[usize::from(nonce.client)].is_some();
        self.sign(nonce);
        self.promote();
        match &self.server.lock {
            Some(grant) if known && grant.nonce == nonce => Reply::Granted { token: grant.token, lasts: CLAIM },
            _ => Reply::Queued { last: self.server.last_token, known: is_known },
        }
    }

    /// `heartbeat.lua`
    fn heartbeat(&mut self, nonce: Nonce) -> Reply {
        let known = self.server.alive[usize::from(nonce.client)].is_some();
        if known {
            self.sign(nonce);
        }
        self.promote();
        let grant = self.server.lock.as_ref().filter(|grant| grant.nonce == nonce);
        let grant = grant.map(|grant| (grant.token, grant.left));
        Reply::Heartbeat { known, queued: self.server.queue.contains(&nonce), last: self.server.last_token, grant }
    }

    /// `mutex/renew.lua`
    fn renew(&mut self, nonce: Nonce) -> Reply {
        let blind = self.is(Mutant::BlindRenewal);
        if let Some(grant) = self.server.lock.as_mut().filter(|grant| blind || grant.nonce == nonce) {
            grant.left = grant.left.max(TTL);
            grant.extended_by = nonce;
            return Reply::Renewed(true);
        }
        Reply::Renewed(false)
    }

    /// `release.lua`, and then `release_promote.lua`.
    fn release(&mut self, nonce: Nonce) -> Reply {
        if self.server.holds(nonce) || self.is(Mutant::BlindRelease) {
            self.server.lock = None;
            self.promote();
        }
        Reply::Ended
    }

    /// `cancel.lua`
    fn cancel(&mut self, nonce: Nonce) -> Reply {
        if !self.is(Mutant::UndoLeavesPlace) {
            self.leave(nonce);
        }
        if self.server.holds(nonce) {
            self.server.lock = None;
        }
        self.promote();
        Reply::Ended
    }

    /// `promote` in `queue.lua`: lets in who is first and lives.
    fn promote(&mut self) {
        while let (None, Some(&first)) = (&self.server.lock, self.server.queue.first()) {
            let client = usize::from(first.client);
            if self.server.alive[client].is_some_and(|left| left > 0) {
                let token = self.grant(first, CLAIM);
                self.pushes.push(Push { nonce: first, token });
            } else {
                self.server.alive[client] = None;
            }
            self.leave(first);
        }
    }

    fn grant(&mut self, nonce: Nonce, lasts: u8) -> u8 {
        let server = &mut *self.server;
        let kept = self.mutant == Some(Mutant::TokenKept) && lasts == CLAIM;
        let token = if kept { server.last_token } else { server.last_token + 1 };
        server.token_went_back |= token <= server.last_token;
        server.last_token = token;
        server.lock = Some(Grant { nonce, token, left: lasts, extended_by: nonce });
        token
    }

    fn sign(&mut self, nonce: Nonce) {
        self.server.alive[usize::from(nonce.client)] = Some(LIVENESS);
    }

    fn leave(&mut self, nonce: Nonce) {
        self.server.queue.retain(|waiter| *waiter != nonce);
        if self.server.queue.is_empty() {
            self.server.alive.fill(None);
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
