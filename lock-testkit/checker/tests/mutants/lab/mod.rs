//! Clients, a store and faults in virtual time: everything follows from the seed. All times are in milliseconds.

mod asking;
mod faults;
mod holding;
mod timers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use lock_core::fence::FenceGate;
use lock_testkit::SeededRng;
use lock_testkit_checker::history::event::{FaultPhase, Kind, Text};
use lock_testkit_checker::history::{History, Rules};

use crate::client::{Client, Reply, Request, Timer};
use crate::flaw::{Flaw, Scenario};
use crate::pen::{MS, Pen};
use crate::store::{Answer, Entry, Store};

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
    rng: SeededRng,
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
        let mut rng = SeededRng::new(seed);
        let clients = (0..CLIENTS).map(|place| Client::new(place, 1 + rng.below(3), 1 + rng.below(5_000))).collect();
        let mut rules = Rules::default();
        rules.fifo = true;
        rules.fencing = scenario != Scenario::Semaphore;
        (rules.op_timeout, rules.hand_over, rules.recovery, rules.enqueue) =
            (OP_TIMEOUT * MS, 200 * MS, 200 * MS, 20 * MS);
        let limit = if scenario == Scenario::Semaphore { PERMITS } else { 1 };
        let mut lab = Self {
            scenario,
            flaw,
            rng,
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
            let begin = lab.rng.below(50);
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
}

fn grant_name(grant: u64) -> Text {
    format!("g{grant}").into()
}
