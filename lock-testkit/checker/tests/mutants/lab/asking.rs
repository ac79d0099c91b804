//! A client's steps to be granted a lock.

use lock_testkit_checker::history::event::{Ask, Granted, Kind, Text};

use super::{Lab, OP_TIMEOUT, PERMITS, STARTS_UNTIL, Turn, grant_name};
use crate::client::{Claim, Reply, Request, State, Timer};
use crate::flaw::{Flaw, Scenario};
use crate::pen::MS;
use crate::store::{Entry, TTL};

impl Lab {
    pub(super) fn start(&mut self, client: usize) {
        if self.now > STARTS_UNTIL {
            return;
        }
        self.last_grant += 1;
        let kind = match self.scenario {
            Scenario::ReadWrite if self.rng.below(3) > 0 => Kind::Read,
            _ => self.a_kind(),
        };
        let permits = if kind == Kind::Sem { 1 + u32::try_from(self.rng.below(3)).unwrap_or(0) } else { 1 };
        let wait = self.rng.one_of(&[None, Some(0), Some(60), Some(400), Some(400)]);
        let id: Text = format!("{}.{}", self.clients[client].name, self.last_grant).into();
        self.pen.asks(self.now, &id, self.ask(client, kind, permits, wait));
        self.clients[client].claim = Some(Claim {
            id,
            grant: self.last_grant,
            kind,
            permits,
            waits: wait != Some(0),
            state: State::Asking,
            heard: false,
            deadline: 0,
            token: 0,
            read: None,
            inner: None,
        });
        self.request(client);
        self.set(client, 100, Timer::AskAgain);
        if let Some(wait) = wait {
            self.set(client, wait.max(OP_TIMEOUT), Timer::GiveUp);
        }
    }

    pub(super) fn ask(&self, client: usize, kind: Kind, permits: u32, wait: Option<u64>) -> Ask {
        let limit = if kind == Kind::Sem { PERMITS } else { 1 };
        let (owner, res) = (self.clients[client].name.as_str().into(), "x".into());
        Ask { owner, res, kind, permits, limit, ttl: TTL * MS, wait: wait.map(|wait| wait * MS), group: None }
    }

    pub(super) fn wish(&self, client: usize) -> Option<Entry> {
        let claim = self.clients[client].claim.as_ref()?;
        let Claim { grant, kind, permits, token, .. } = *claim;
        Some(Entry { grant, client, kind, permits, expires: 0, token })
    }

    fn request(&mut self, client: usize) {
        if let Some(wish) = self.wish(client) {
            let waits = self.clients[client].claim.as_ref().is_some_and(|claim| claim.waits);
            self.send(client, Request::Ask { wish, waits, sent: self.now });
        }
    }

    pub(super) fn hear(&mut self, client: usize, reply: Reply) {
        let now = self.now;
        match reply {
            Reply::Queued { grant } => {
                if let Some(claim) = self.clients[client].claim_in(grant, State::Asking) {
                    claim.heard = true;
                }
            }
            Reply::Refused { grant } => {
                if let Some(claim) = self.clients[client].claim_in(grant, State::Asking) {
                    let id = claim.id.clone();
                    self.pen.refused(now, &id, "held");
                    self.rest(client);
                }
            }
            Reply::Pushed { grant } => {
                if self.clients[client].claim_in(grant, State::Asking).is_some() {
                    self.request(client);
                }
            }
            Reply::Granted { grant, token, sent } => self.granted(client, grant, token, sent),
            Reply::Renewed { grant, sent, there } => self.renewed(client, grant, sent, there),
            Reply::Released { grant, there } => {
                if let Some(claim) = self.clients[client].claim_in(grant, State::Releasing) {
                    let id = claim.id.clone();
                    self.pen.released(now, &id, there);
                    self.rest(client);
                }
                self.clients[client].chores.retain(|chore| *chore != grant);
            }
            Reply::Cancelled { grant } => {
                self.clients[client].chores.retain(|chore| *chore != grant);
                if let Some(claim) = self.clients[client].claim_in(grant, State::GivingUp) {
                    let id = claim.id.clone();
                    self.pen.refused(now, &id, "held");
                    self.rest(client);
                }
            }
        }
    }

    fn granted(&mut self, client: usize, grant: u64, token: u64, sent: u64) {
        let Some(claim) = self.clients[client].claim_in(grant, State::Asking) else { return };
        let id = claim.id.clone();
        if self.clients[client].doomed {
            self.die(client);
            return;
        }
        let deadline = self.deadline(sent);
        if self.now >= deadline {
            self.pen.refused(self.now, &id, "timed_out");
            self.take_back(client, grant);
            self.rest(client);
            return;
        }
        if let Some(claim) = &mut self.clients[client].claim {
            (claim.state, claim.deadline, claim.token) = (State::Held, deadline, token);
        }
        if self.is(Flaw::ExpiryInSecondStep) {
            self.send(client, Request::SetExpiry { grant });
        }
        let fenced = self.scenario != Scenario::Semaphore;
        let granted = Granted {
            token: fenced.then_some(token),
            grant: Some(grant_name(grant)),
            sent: Some(sent * MS),
            depth: (self.scenario == Scenario::Reentrant).then_some(1),
            sample: self.sample(client),
        };
        self.pen.granted(self.now, &id, granted);
        let hold = self.rng.one_of(&[10, 10, 30, 30, 60, 60, 60, 60, 400, 1_500]);
        self.set(client, TTL / 3, Timer::Renew);
        self.set(client, deadline - self.now, Timer::Deadline);
        self.set(client, 5, Timer::Check);
        self.set(client, hold, Timer::End);
        match self.scenario {
            Scenario::Mutex => {
                self.set(client, 1, Timer::Read);
                self.set(client, hold / 2, Timer::Write);
            }
            Scenario::Reentrant => {
                self.set(client, hold / 4, Timer::Enter);
                self.set(client, hold / 2, Timer::Leave);
            }
            Scenario::ReadWrite | Scenario::Semaphore => {}
        }
    }

    pub(super) fn ask_again(&mut self, client: usize, claim: &Claim) {
        if self.is(Flaw::AnonymousRetry) && !claim.heard {
            self.last_grant += 1;
            if let Some(claim) = &mut self.clients[client].claim {
                claim.grant = self.last_grant;
            }
            self.set(client, 400, Timer::GiveUp);
        }
        self.request(client);
        self.set(client, 100, Timer::AskAgain);
    }

    pub(super) fn take_back(&mut self, client: usize, grant: u64) {
        self.clients[client].chores.push(grant);
        self.plan(0, Turn::Timer(client, grant, Timer::CancelAgain));
    }

    /// No claim any more; the next one a little later.
    pub(super) fn rest(&mut self, client: usize) {
        self.clients[client].claim = None;
        let pause = 1 + self.rng.below(60);
        self.plan(pause, Turn::Start(client));
    }

    fn die(&mut self, client: usize) {
        self.clients[client].dead = true;
        let name = self.clients[client].name.clone();
        self.pen.died(self.now, &name);
    }
}
