//! The server: the scripts of `lock-redis/src/store/scripts`, each as one step.

use super::wire::{Nonce, Reply, Request, Told};
use super::{CLAIM, LIVENESS, Mutant, TTL};

/// The lock's keys, and the server's clock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Server {
    /// Seconds.
    pub(super) now: u8,
    pub(super) lock: Option<Grant>,
    /// Those who wait, in the order of their tickets.
    pub(super) queue: Vec<(u8, Nonce)>,
    /// The second until which each client counts as alive; `None` for one that is not known to wait.
    alive: Vec<Option<u8>>,
    last_token: u8,
    /// Whether a token was ever no higher than one before.
    pub(super) token_went_back: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grant {
    pub(super) nonce: Nonce,
    token: u8,
    /// The second in which it is over.
    pub(super) ends: u8,
    /// Whether its waiter is told by a reply to its client, and not by push.
    pub(super) is_in_reply: bool,
}

/// One request being carried out.
pub(super) struct Run<'a> {
    pub(super) server: &'a mut Server,
    pub(super) pushes: Vec<Told>,
    pub(super) mutant: Option<Mutant>,
}

impl Server {
    /// A lock that is held, and that these wait for.
    pub(super) fn new(clients: usize, holder: Nonce, queue: Vec<(u8, Nonce)>) -> Self {
        let lock = Some(Grant { nonce: holder, token: 1, ends: TTL, is_in_reply: false });
        let waits = |client| queue.iter().any(|(_, nonce)| usize::from(nonce.client) == client);
        let alive = (0..clients).map(|client| waits(client).then_some(LIVENESS)).collect();
        Self { now: 0, lock, queue, alive, last_token: 1, token_went_back: false }
    }

    pub(super) fn tick(&mut self) {
        self.now += 1;
        let now = self.now;
        self.lock.take_if(|grant| grant.ends <= now);
    }

    pub(super) fn holds(&self, nonce: Nonce) -> bool {
        self.lock.as_ref().is_some_and(|grant| grant.nonce == nonce)
    }

    pub(super) fn has(&self, nonce: Nonce) -> bool {
        self.holds(nonce) || self.queue.iter().any(|(_, other)| *other == nonce)
    }
}

impl Run<'_> {
    /// Carries out a request; of an acquisition with the ticket that its waiter has had.
    pub(super) fn carry_out(&mut self, request: Request, ticket: impl Fn(Nonce) -> u8) -> Reply {
        match request {
            Request::Kill => Reply::None,
            Request::Acquire(nonce) => self.acquire(nonce, ticket(nonce)),
            Request::Heartbeat(client) => self.heartbeat(client),
            Request::Release(nonce) => self.release(nonce),
            Request::Cancel(nonce) => Reply::Ended(self.cancel(nonce, Some(nonce.client))),
            Request::GiveBack(nonce) => {
                self.cancel(nonce, None);
                Reply::None
            }
        }
    }

    /// `acquire_free.lua`, and then `acquire.lua`.
    fn acquire(&mut self, nonce: Nonce, ticket: u8) -> Reply {
        let ends = self.server.now + TTL;
        if let Some(grant) = self.server.lock.as_mut().filter(|grant| grant.nonce == nonce) {
            grant.ends = grant.ends.max(ends);
            return Reply::Granted(Told { nonce, token: grant.token, lasts: TTL });
        }
        if self.server.lock.is_none() && self.server.queue.is_empty() {
            let token = self.grant(nonce, TTL, false);
            return Reply::Granted(Told { nonce, token, lasts: TTL });
        }
        if !self.server.queue.contains(&(ticket, nonce)) {
            self.server.queue.push((ticket, nonce));
            self.server.queue.sort_unstable_by_key(|(ticket, _)| *ticket);
        }
        let known = self.server.alive[usize::from(nonce.client)].is_some();
        self.sign(nonce.client);
        self.promote(None);
        match &self.server.lock {
            Some(grant) if grant.nonce == nonce => Reply::Granted(Told { nonce, token: grant.token, lasts: CLAIM }),
            _ => Reply::Queued { last: self.server.last_token, known },
        }
    }

    /// `heartbeat.lua`
    fn heartbeat(&mut self, client: u8) -> Reply {
        let known = self.server.alive[usize::from(client)].is_some();
        if known {
            self.sign(client);
        }
        self.promote(None);
        let Server { now, lock, queue, last_token, .. } = &*self.server;
        let queued = queue.iter().map(|(_, nonce)| *nonce).filter(|nonce| nonce.client == client).collect();
        let held = lock.as_ref().filter(|grant| grant.nonce.client == client);
        let held = held.map(|grant| Told { nonce: grant.nonce, token: grant.token, lasts: grant.ends - now });
        Reply::Heartbeat { known, queued, last: *last_token, held }
    }

    /// `mutex/handover_short.lua`, or `release.lua` and then `release_promote.lua`.
    fn release(&mut self, nonce: Nonce) -> Reply {
        if self.server.holds(nonce) || self.is(Mutant::HandsOverTwice) {
            self.server.lock = None;
            return Reply::Ended(self.promote(Some(nonce.client)));
        }
        let next = self.server.lock.as_ref().filter(|grant| grant.nonce.client == nonce.client && grant.is_in_reply);
        let next = next.filter(|_| self.is(Mutant::TellsTwice));
        Reply::Ended(next.map(|grant| Told { nonce: grant.nonce, token: grant.token, lasts: TTL }))
    }

    /// `cancel.lua`
    fn cancel(&mut self, nonce: Nonce, caller: Option<u8>) -> Option<Told> {
        self.leave(nonce);
        if self.server.holds(nonce) {
            self.server.lock = None;
        }
        self.promote(caller)
    }

    /// `promote` in `queue.lua`: lets in who is first and lives. A waiter of the caller is told by the reply.
    fn promote(&mut self, caller: Option<u8>) -> Option<Told> {
        let mut told = None;
        while let (None, Some(&(_, nonce))) = (&self.server.lock, self.server.queue.first()) {
            let alive = &mut self.server.alive[usize::from(nonce.client)];
            if alive.is_some_and(|until| until > self.server.now) {
                let is_own = caller == Some(nonce.client) || self.is(Mutant::NamesOthers) && caller.is_some();
                let lasts = if is_own && !self.is(Mutant::TwoEnds) { TTL } else { CLAIM };
                let token = self.grant(nonce, lasts, is_own);
                if is_own {
                    told = Some(Told { nonce, token, lasts: TTL });
                }
                if !is_own || self.is(Mutant::TwoEnds) {
                    self.pushes.push(Told { nonce, token, lasts });
                }
            } else {
                *alive = None;
            }
            self.leave(nonce);
        }
        told
    }

    fn grant(&mut self, nonce: Nonce, lasts: u8, is_in_reply: bool) -> u8 {
        let kept = self.is(Mutant::TokenKept) && is_in_reply;
        let server = &mut *self.server;
        let token = if kept { server.last_token } else { server.last_token + 1 };
        server.token_went_back |= token <= server.last_token;
        server.last_token = token;
        server.lock = Some(Grant { nonce, token, ends: server.now + lasts, is_in_reply });
        token
    }

    fn sign(&mut self, client: u8) {
        self.server.alive[usize::from(client)] = Some(self.server.now + LIVENESS);
    }

    fn leave(&mut self, nonce: Nonce) {
        self.server.queue.retain(|(_, waiter)| *waiter != nonce);
        if self.server.queue.is_empty() {
            self.server.alive.fill(None);
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
