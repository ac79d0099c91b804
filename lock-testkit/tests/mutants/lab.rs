//! Clients, a store and faults in virtual time: everything follows from the seed. All times are in milliseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lock_core::FencingToken;
use lock_core::fence::FenceGate;
use lock_testkit::checker::Rules;
use lock_testkit::history::History;
use lock_testkit::history::event::{Ask, FaultPhase, Granted, Kind, Sample, Text};

use crate::client::{Claim, Client, Reply, Request, State, Timer};
use crate::flaw::{Flaw, Scenario};
use crate::pen::{MS, Pen};
use crate::store::{Answer, Entry, Store};

pub(crate) const TTL: u64 = 1_000;
const OP_TIMEOUT: u64 = 50;
const CLIENTS: usize = 5;
const PERMITS: u32 = 3;
/// Faults end here, and with the last settled, everything is quiet.
const FAULTS_UNTIL: u64 = 6_000;
const STARTS_UNTIL: u64 = 12_000;
const LATEST: u64 = 16_000;

#[derive(Debug, Clone, Copy)]
enum Turn {
    Start(usize),
    AtStore(usize, Request),
    AtClient(usize, Reply),
    Timer(usize, u64, Timer),
    Fault,
    Healed(usize, u64),
    Look,
}

/// One run.
pub(crate) fn run(scenario: Scenario, flaw: Option<Flaw>, seed: u64) -> History {
    let mut lab = Lab::new(scenario, flaw, seed);
    lab.go();
    lab.pen.finish(lab.now)
}

struct Lab {
    scenario: Scenario,
    flaw: Option<Flaw>,
    dice: Dice,
    pen: Pen,
    now: u64,
    turns: BinaryHeap<Reverse<(u64, u64, usize)>>,
    planned: Vec<Turn>,
    store: Store,
    clients: Vec<Client>,
    gate: FenceGate,
    value: u64,
    last_grant: u64,
}

impl Lab {
    fn new(scenario: Scenario, flaw: Option<Flaw>, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let clients = (0..CLIENTS).map(|place| Client::new(place, 1 + dice.below(3), 1 + dice.below(5_000))).collect();
        let mut rules = Rules::default();
        rules.fifo = true;
        rules.fencing = scenario != Scenario::Semaphore;
        (rules.op_timeout, rules.hand_over, rules.recovery, rules.enqueue) =
            (OP_TIMEOUT * MS, 200 * MS, 200 * MS, 20 * MS);
        let limit = if scenario == Scenario::Semaphore { PERMITS } else { 1 };
        let mut lab = Self {
            scenario,
            flaw,
            dice,
            pen: Pen::new(seed, rules),
            now: 0,
            turns: BinaryHeap::new(),
            planned: Vec::new(),
            store: Store::new(limit, flaw),
            clients,
            gate: FenceGate::new(),
            value: 0,
            last_grant: 0,
        };
        for client in 0..CLIENTS {
            let begin = lab.dice.below(50);
            lab.plan(begin, Turn::Start(client));
        }
        lab.plan(300, Turn::Fault);
        lab.plan(10, Turn::Look);
        lab
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn plan(&mut self, after: u64, turn: Turn) {
        self.planned.push(turn);
        let place = self.planned.len();
        self.turns.push(Reverse((self.now + after, place as u64, place - 1)));
    }

    fn go(&mut self) {
        while let Some(Reverse((t, _, place))) = self.turns.pop() {
            self.now = t;
            let turn = self.planned[place];
            if let Turn::Start(client) | Turn::AtClient(client, _) | Turn::Timer(client, ..) = turn {
                if self.clients[client].dead {
                    continue;
                }
                // Who stands still does all of it afterwards, in its order.
                let until = self.clients[client].paused_until;
                if self.now < until {
                    self.plan(until - self.now, turn);
                    continue;
                }
            }
            self.take(turn);
            self.settle();
            if t > STARTS_UNTIL && self.clients.iter().all(Client::is_idle) {
                self.now += OP_TIMEOUT;
                self.settle();
                let left = self.store.held.iter().chain(&self.store.queue).map(|entry| grant_name(entry.grant));
                self.pen.residue(self.now, left.collect());
                return;
            }
            if t > LATEST {
                return;
            }
        }
    }

    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Start(client) => self.start(client),
            Turn::AtStore(client, request) => self.serve(client, request),
            Turn::AtClient(client, reply) => self.hear(client, reply),
            Turn::Timer(client, grant, timer) => self.ring(client, grant, timer),
            Turn::Fault => self.begin_fault(),
            Turn::Healed(client, fault) => {
                let name = self.clients[client].name.clone();
                self.pen.fault(self.now, &format!("f{fault}"), FaultPhase::Heal, "over", &name);
            }
            Turn::Look => {
                let kind = self.a_kind();
                let holders = self.store.held.iter().map(|held| grant_name(held.grant)).collect();
                self.pen.truth(self.now, kind, holders);
                self.plan(10, Turn::Look);
            }
        }
    }

    fn a_kind(&self) -> Kind {
        match self.scenario {
            Scenario::Mutex => Kind::Mutex,
            Scenario::Reentrant => Kind::Reentrant,
            Scenario::ReadWrite => Kind::Write,
            Scenario::Semaphore => Kind::Sem,
        }
    }

    fn settle(&mut self) {
        let all_told = self.store.settle(self.now);
        // Readers and permits are let in together, as many as fit.
        if !all_told.is_empty() && self.scenario == Scenario::Mutex {
            self.pen.woken(self.now, all_told.len() as u64);
        }
        for told in all_told {
            self.reply(told.client, Reply::Pushed { grant: told.grant });
        }
    }

    fn send(&mut self, client: usize, request: Request) {
        let Client { latency, cut_until, cut_both, .. } = self.clients[client];
        if !(cut_both && self.now < cut_until) {
            self.plan(latency, Turn::AtStore(client, request));
        }
    }

    fn reply(&mut self, client: usize, reply: Reply) {
        if self.now >= self.clients[client].cut_until {
            self.plan(self.clients[client].latency, Turn::AtClient(client, reply));
        }
    }

    fn set(&mut self, client: usize, after: u64, timer: Timer) {
        if let Some(claim) = &self.clients[client].claim {
            self.plan(after, Turn::Timer(client, claim.grant, timer));
        }
    }

    // What the store does.

    fn serve(&mut self, client: usize, request: Request) {
        self.settle();
        let now = self.now;
        match request {
            Request::Ask { wish, waits, sent } => {
                let grant = wish.grant;
                let skew = self.clients[client].skew;
                let reply = match self.store.ask(now, Entry { expires: now, ..wish }, waits, skew) {
                    Answer::Granted(token) => Reply::Granted { grant, token, sent },
                    Answer::Queued => Reply::Queued { grant },
                    Answer::Refused => Reply::Refused { grant },
                };
                self.reply(client, reply);
            }
            Request::Renew { wish, sent } => {
                let there = self.store.renew(now, wish);
                self.reply(client, Reply::Renewed { grant: wish.grant, sent, there });
            }
            Request::Release { grant } => {
                let there = self.store.release(now, grant);
                self.reply(client, Reply::Released { grant, there });
            }
            Request::Cancel { grant } => {
                if let Some(follower) = self.store.cancel(now, grant) {
                    self.reply(follower.client, Reply::Pushed { grant: follower.grant });
                }
                self.reply(client, Reply::Cancelled { grant });
            }
            Request::SetExpiry { grant } => self.store.set_expiry(now, grant),
        }
    }

    // What a client does.

    fn start(&mut self, client: usize) {
        if self.now > STARTS_UNTIL {
            return;
        }
        self.last_grant += 1;
        let kind = match self.scenario {
            Scenario::ReadWrite if self.dice.below(3) > 0 => Kind::Read,
            _ => self.a_kind(),
        };
        let permits = if kind == Kind::Sem { 1 + u32::try_from(self.dice.below(3)).unwrap_or(0) } else { 1 };
        let wait = self.dice.one_of(&[None, Some(0), Some(60), Some(400), Some(400)]);
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

    fn ask(&self, client: usize, kind: Kind, permits: u32, wait: Option<u64>) -> Ask {
        let limit = if kind == Kind::Sem { PERMITS } else { 1 };
        let (owner, res) = (self.clients[client].name.as_str().into(), "x".into());
        Ask { owner, res, kind, permits, limit, ttl: TTL * MS, wait: wait.map(|wait| wait * MS), group: None }
    }

    fn wish(&self, client: usize) -> Option<Entry> {
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

    fn hear(&mut self, client: usize, reply: Reply) {
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
        let hold = self.dice.one_of(&[10, 10, 30, 30, 60, 60, 60, 60, 400, 1_500]);
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

    /// Until when a holder believes in what it has asked for then.
    fn deadline(&self, sent: u64) -> u64 {
        let margin = TTL / 100 + 2;
        match self.flaw {
            Some(Flaw::NoDeadline) => u64::MAX / MS,
            Some(Flaw::DeadlineFromReply) => self.now + TTL - margin,
            _ => sent + TTL - margin,
        }
    }

    fn sample(&self, client: usize) -> Sample {
        let claim = self.clients[client].claim.as_ref().filter(|claim| claim.state == State::Held);
        let deadline = claim.map(|claim| claim.deadline).filter(|deadline| *deadline > self.now);
        let shown = deadline.filter(|_| !self.is(Flaw::NoDeadline)).map(|deadline| deadline * MS);
        Sample { held: Some(deadline.is_some()), deadline: shown }
    }

    fn renewed(&mut self, client: usize, grant: u64, sent: u64, there: bool) {
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

    fn take_back(&mut self, client: usize, grant: u64) {
        self.clients[client].chores.push(grant);
        self.plan(0, Turn::Timer(client, grant, Timer::CancelAgain));
    }

    /// No claim any more; the next one a little later.
    fn rest(&mut self, client: usize) {
        self.clients[client].claim = None;
        let pause = 1 + self.dice.below(60);
        self.plan(pause, Turn::Start(client));
    }

    fn die(&mut self, client: usize) {
        self.clients[client].dead = true;
        let name = self.clients[client].name.clone();
        self.pen.died(self.now, &name);
    }

    fn ring(&mut self, client: usize, grant: u64, timer: Timer) {
        if timer == Timer::CancelAgain {
            if self.clients[client].chores.contains(&grant) {
                self.send(client, Request::Cancel { grant });
                self.plan(100, Turn::Timer(client, grant, timer));
            }
            return;
        }
        let zombie = self.is(Flaw::RenewsAfterRelease) && timer == Timer::Renew;
        let Some(claim) = self.clients[client].claim.clone().filter(|claim| claim.grant == grant) else {
            if zombie {
                let wish = Entry { grant, client, kind: Kind::Mutex, permits: 1, expires: 0, token: 0 };
                self.send(client, Request::Renew { wish, sent: self.now });
            }
            return;
        };
        match (timer, claim.state) {
            (Timer::AskAgain, State::Asking) => self.ask_again(client, &claim),
            (Timer::GiveUp, State::Asking) => {
                if let Some(claim) = &mut self.clients[client].claim {
                    claim.state = State::GivingUp;
                }
                self.take_back(client, grant);
                self.set(client, OP_TIMEOUT, Timer::GiveUpAtLast);
            }
            (Timer::GiveUpAtLast, State::GivingUp) => {
                self.pen.unclear(self.now, &claim.id);
                self.rest(client);
            }
            (Timer::Renew, State::Held | State::Lost) => self.renew(client, &claim),
            (Timer::Deadline, State::Held) => self.look_at_deadline(client, &claim),
            (Timer::Check, State::Held | State::Lost) => {
                let sample = self.sample(client);
                self.pen.checked(self.now, &claim.id, sample);
                self.set(client, 10, Timer::Check);
            }
            (Timer::Read, State::Held | State::Lost) => self.read(client, &claim),
            (Timer::Write, State::Held | State::Lost) => self.write(&claim),
            (Timer::Enter, State::Held) => self.enter(client, &claim),
            (Timer::Leave, State::Held) => self.leave(client, &claim),
            (Timer::End, State::Held) => self.release(client, &claim),
            (Timer::End, State::Lost) => {
                self.pen.releases(self.now, &claim.id, false);
                self.pen.released(self.now, &claim.id, false);
                if self.is(Flaw::BlindDelete) {
                    self.send(client, Request::Release { grant });
                }
                self.rest(client);
            }
            (Timer::ReleaseAgain, State::Releasing) => {
                self.pen.release_is_unclear(self.now, &claim.id, "outcome_unknown");
                self.take_back(client, grant);
                self.rest(client);
            }
            _ => {}
        }
    }

    fn ask_again(&mut self, client: usize, claim: &Claim) {
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

    fn renew(&mut self, client: usize, claim: &Claim) {
        let revives = self.is(Flaw::BlindRenewal);
        if (claim.state == State::Held && self.now < claim.deadline) || revives {
            if let Some(wish) = self.wish(client) {
                self.send(client, Request::Renew { wish, sent: self.now });
            }
            self.set(client, TTL / 3, Timer::Renew);
        }
    }

    fn look_at_deadline(&mut self, client: usize, claim: &Claim) {
        if self.now >= claim.deadline {
            self.lose(client, "expired");
        } else {
            self.set(client, claim.deadline - self.now, Timer::Deadline);
        }
    }

    fn read(&mut self, client: usize, claim: &Claim) {
        let accepted = self.admit(claim.token);
        self.pen.accessed(self.now, &claim.id, claim.token, None, accepted);
        let value = self.value;
        if let Some(claim) = self.clients[client].claim.as_mut().filter(|_| accepted) {
            claim.read = Some(value);
        }
    }

    fn write(&mut self, claim: &Claim) {
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

    fn enter(&mut self, client: usize, claim: &Claim) {
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

    fn leave(&mut self, client: usize, claim: &Claim) {
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

    fn release(&mut self, client: usize, claim: &Claim) {
        if self.now >= claim.deadline {
            self.lose(client, "expired");
            self.set(client, 0, Timer::End);
            return;
        }
        if claim.kind == Kind::Read && self.is(Flaw::UpgradeWaits) && self.dice.below(10) == 0 {
            self.last_grant += 1;
            let id: Text = format!("{}.{}", self.clients[client].name, self.last_grant).into();
            self.pen.asks(self.now, &id, self.ask(client, Kind::Write, 1, None));
            let wish = Entry { grant: self.last_grant, client, kind: Kind::Write, permits: 1, expires: 0, token: 0 };
            self.send(client, Request::Ask { wish, waits: true, sent: self.now });
            return;
        }
        self.pen.releases(self.now, &claim.id, true);
        if self.dice.below(4) == 0 {
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

    // What befalls them.

    fn begin_fault(&mut self) {
        if self.now > FAULTS_UNTIL {
            return;
        }
        let fault = self.now;
        let client = usize::try_from(self.dice.below(CLIENTS as u64)).unwrap_or(0);
        let length = self.dice.one_of(&[TTL / 4, TTL * 9 / 10, TTL * 11 / 10, TTL * 3 / 2]);
        let crashed = self.clients.iter().filter(|client| client.dead || client.doomed).count();
        let until = self.now + length;
        let name = match self.dice.below(4) {
            0 => {
                self.clients[client].paused_until = until;
                "sigstop"
            }
            1 if crashed < 2 => {
                self.clients[client].doomed = true;
                "sigkill"
            }
            kind => {
                self.clients[client].cut_until = until;
                self.clients[client].cut_both = self.dice.below(2) == 0;
                if kind == 3 && self.is(Flaw::WallClockDeadline) {
                    self.set_clock_back(client);
                }
                "blackhole"
            }
        };
        let target = self.clients[client].name.clone();
        self.pen.fault(self.now, &format!("f{fault}"), FaultPhase::Start, name, &target);
        self.plan(length, Turn::Healed(client, fault));
        let next = 300 + self.dice.below(900);
        self.plan(length.min(600) + next, Turn::Fault);
    }

    /// A deadline by the wall clock comes later by as much.
    fn set_clock_back(&mut self, client: usize) {
        if let Some(claim) = &mut self.clients[client].claim {
            claim.deadline += 5_000;
        }
    }
}

fn grant_name(grant: u64) -> Text {
    format!("g{grant}").into()
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }
}
