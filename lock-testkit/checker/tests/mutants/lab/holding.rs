//! A client's steps with a lock that it holds, and when it has lost it.

use lock_core::FencingToken;
use lock_testkit_checker::history::event::{Granted, Kind, Sample, Text};

use super::{Lab, OP_TIMEOUT};
use crate::client::{Claim, Request, State, Timer};
use crate::flaw::Flaw;
use crate::pen::MS;
use crate::store::{Entry, TTL};

impl Lab {
    /// Returns until when a holder believes in what it has asked for then.
    pub(super) fn deadline(&self, sent: u64) -> u64 {
        let margin = TTL / 100 + 2;
        match self.flaw {
            Some(Flaw::NoDeadline) => u64::MAX / MS,
            Some(Flaw::DeadlineFromReply) => self.now + TTL - margin,
            _ => sent + TTL - margin,
        }
    }

    pub(super) fn sample(&self, client: usize) -> Sample {
        let claim = self.clients[client].claim.as_ref().filter(|claim| claim.state == State::Held);
        let deadline = claim.map(|claim| claim.deadline).filter(|deadline| *deadline > self.now);
        let shown = deadline.filter(|_| !self.is(Flaw::NoDeadline)).map(|deadline| deadline * MS);
        Sample { held: Some(deadline.is_some()), deadline: shown }
    }

    pub(super) fn renewed(&mut self, client: usize, grant: u64, sent: u64, there: bool) {
        let deadline = self.deadline(sent);
        let Some(claim) = self.clients[client].claim.as_mut().filter(|claim| claim.grant == grant) else { return };
        let id = claim.id.clone();
        match (there, claim.state) {
            (true, State::Held) => {
                claim.deadline = claim.deadline.max(deadline);
                self.pen.renewed(self.now, &id, sent, true);
            }
            // What was lost is lost, unless this is the flaw.
            (true, State::Lost) if self.flaw == Some(Flaw::BlindRenewal) => {
                (claim.state, claim.deadline) = (State::Held, deadline);
                self.set(client, 5, Timer::Check);
            }
            (false, State::Held) => {
                self.pen.renewed(self.now, &id, sent, false);
                self.lose(client, "taken");
            }
            _ => {}
        }
    }

    pub(super) fn renew(&mut self, client: usize, claim: &Claim) {
        let revives = self.is(Flaw::BlindRenewal);
        if (claim.state == State::Held && self.now < claim.deadline) || revives {
            if let Some(wish) = self.wish(client) {
                self.send(client, Request::Renew { wish, sent: self.now });
            }
            self.set(client, TTL / 3, Timer::Renew);
        }
    }

    pub(super) fn look_at_deadline(&mut self, client: usize, claim: &Claim) {
        if self.now >= claim.deadline {
            self.lose(client, "expired");
        } else {
            self.set(client, claim.deadline - self.now, Timer::Deadline);
        }
    }

    fn lose(&mut self, client: usize, reason: &str) {
        if let Some(claim) = &mut self.clients[client].claim {
            claim.state = State::Lost;
            let (id, grant) = (claim.id.clone(), claim.grant);
            self.pen.lost(self.now, &id, reason);
            if !self.is(Flaw::BlindRenewal) {
                self.take_back(client, grant);
            }
        }
    }

    pub(super) fn read(&mut self, client: usize, claim: &Claim) {
        let accepted = self.admit(claim.token);
        self.pen.accessed(self.now, &claim.id, claim.token, None, accepted);
        let value = self.value;
        if let Some(claim) = self.clients[client].claim.as_mut().filter(|_| accepted) {
            claim.read = Some(value);
        }
    }

    pub(super) fn write(&mut self, claim: &Claim) {
        let Some(read) = claim.read else { return };
        let accepted = self.admit(claim.token);
        self.pen.accessed(self.now, &claim.id, claim.token, Some(read + 1), accepted);
        if accepted {
            self.value = read + 1;
        }
    }

    fn admit(&self, token: u64) -> bool {
        FencingToken::new(token).is_some_and(|token| self.gate.admit_exclusive(token).is_ok())
    }

    pub(super) fn enter(&mut self, client: usize, claim: &Claim) {
        self.last_grant += 1;
        let id: Text = format!("{}.{}", self.clients[client].name, self.last_grant).into();
        self.pen.asks(self.now, &id, self.ask(client, claim.kind, 1, None));
        let sample = self.sample(client);
        let granted = Granted { token: Some(claim.token), depth: Some(2), sample, ..Granted::default() };
        self.pen.granted(self.now, &id, granted);
        if let Some(claim) = &mut self.clients[client].claim {
            claim.inner = Some(id);
        }
    }

    pub(super) fn leave(&mut self, client: usize, claim: &Claim) {
        let Some(inner) = &claim.inner else { return };
        let held = self.sample(client).held == Some(true);
        self.pen.releases(self.now, inner, held);
        self.pen.released(self.now, inner, held);
        if self.is(Flaw::InnerReleaseFrees) {
            self.send(client, Request::Release { grant: claim.grant });
        }
        if let Some(claim) = &mut self.clients[client].claim {
            claim.inner = None;
        }
    }

    pub(super) fn release(&mut self, client: usize, claim: &Claim) {
        if self.now >= claim.deadline {
            self.lose(client, "expired");
            self.set(client, 0, Timer::End);
            return;
        }
        if claim.kind == Kind::Read && self.is(Flaw::UpgradeWaits) && self.rng.below(10) == 0 {
            self.last_grant += 1;
            let id: Text = format!("{}.{}", self.clients[client].name, self.last_grant).into();
            self.pen.asks(self.now, &id, self.ask(client, Kind::Write, 1, None));
            let wish = Entry { grant: self.last_grant, client, kind: Kind::Write, permits: 1, expires: 0, token: 0 };
            self.send(client, Request::Ask { wish, waits: true, sent: self.now });
            return;
        }
        self.pen.releases(self.now, &claim.id, true);
        if self.rng.below(4) == 0 {
            self.pen.release_is_unclear(self.now, &claim.id, "dropped");
            if !self.is(Flaw::DropKeeps) {
                self.take_back(client, claim.grant);
            }
            self.rest(client);
            return;
        }
        self.send(client, Request::Release { grant: claim.grant });
        if self.is(Flaw::ForgetsBeforeRelease) {
            self.pen.released(self.now, &claim.id, true);
            self.rest(client);
            return;
        }
        if let Some(claim) = &mut self.clients[client].claim {
            claim.state = State::Releasing;
        }
        self.set(client, OP_TIMEOUT, Timer::ReleaseAgain);
    }
}
