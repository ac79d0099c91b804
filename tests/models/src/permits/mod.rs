//! The permits of a semaphore: what `lock-zk` does on paths of its own.
//!
//! The first in the queue counts the permits and takes its own in the place of its node. While nobody is in the queue, permits are
//! taken without a place, and those that were made before are counted behind. The clients (`client.rs`) decide by what ships: `Taking`,
//! `Contention` and `is_within`. The servers (`server.rs`) are what ZooKeeper promises, as in the model of the [queue](crate::queue).
//!
//! Attempts of one process tell each other when a place has gone, and a holder hands its permits over to the successor (`process.rs`): a twin of `lock-zk`'s
//! registry, but for `Successor`, which ships. Each has a connection of its own
//! here, so that more can happen than over the one that they share.
//!
//! Answers get lost with their connection, whether the request was carried out or not; processes die. Sessions and time are left out,
//! which that model has, and so are tries, which always have a place in the queue, and nodes that somebody else deletes.

mod calm;
mod client;
mod mutant;
mod process;
mod server;

use lock_zk::machine::TakingEvent;
use stateright::{Model, Property};

use client::{Client, Phase};
use process::Process;
use server::{AttemptId, Reply, Server};

pub use mutant::Mutant;

/// Some clients, each with some attempts, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct Permits {
    /// The number of permits that each client wants.
    pub weights: &'static [u8],
    /// The number of the first clients that are attempts of one process.
    pub local: u8,
    /// The number of permits that there are.
    pub limit: u8,
    /// The number of times that each of them wants permits.
    pub attempts: u8,
    /// The number of connections that break: of the first client.
    pub cuts: u8,
    /// The number of processes that die: of the first client.
    pub crashes: u8,
    /// The mistake that is made on purpose.
    pub mutant: Option<Mutant>,
}

/// Everything there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    server: Server,
    clients: Vec<Client>,
    /// The process of the first clients, and one of each other client.
    processes: Vec<Process>,
    cuts: u8,
    crashes: u8,
}

/// The actions that can come next; the number is a client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The servers carry out the client's next request.
    Serve(usize),
    /// The client takes an answer, or an event.
    Hear(usize),
    /// An attempt begins without a place in the queue.
    Claim(usize),
    /// An attempt begins in the queue.
    Enqueue(usize),
    /// The waiter gives up, or the holder releases.
    Leave(usize),
    /// The connection breaks and is replaced.
    Cut(usize),
    /// The process dies, and its session ends.
    Crash(usize),
}

impl Permits {
    fn client_actions(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[at];
        if !client.requests.is_empty() {
            actions.push(Action::Serve(at));
        }
        if !client.replies.is_empty() {
            actions.push(Action::Hear(at));
        }
        if client.is_over() {
            return;
        }
        if client.phase == Phase::Idle {
            actions.extend([Action::Claim(at), Action::Enqueue(at)]);
        }
        if client.may_leave() {
            actions.push(Action::Leave(at));
        }
        if at == 0 && state.cuts > 0 && client.phase != Phase::Idle {
            actions.push(Action::Cut(at));
        }
        if at == 0 && state.crashes > 0 {
            actions.push(Action::Crash(at));
        }
    }

    /// One step, and what attempts of one process tell each other because of it.
    fn step(&self, state: &mut State, action: Action) {
        self.happen(state, action);
        let State { clients, processes, .. } = state;
        for (at, process) in processes.iter_mut().enumerate() {
            for told in process.take_received() {
                let Reply::HandedOver { successor, .. } = told else { continue };
                match clients.iter_mut().find(|client| client.id == successor && client.phase != Phase::Leaving) {
                    Some(client) => client.replies.push(told),
                    None => process.heard(successor),
                }
            }
            for (place, first) in process.take_gone() {
                let waits = |client: &&mut Client| {
                    self.process(client.id.client) == at && client.phase == Phase::Following(place.zxid)
                };
                for client in clients.iter_mut().filter(waits) {
                    client.replies.push(Reply::Gone { is_first: first == Some(client.id) });
                }
            }
        }
    }

    /// Returns the process of a client.
    fn process(&self, client: u8) -> usize {
        if client < self.local { 0 } else { usize::from(client) + 1 }
    }

    fn happen(&self, state: &mut State, action: Action) {
        let State { server, clients, processes, .. } = state;
        let process = |at: usize| self.process(u8::try_from(at).unwrap_or(u8::MAX));
        match action {
            Action::Serve(at) => {
                let request = clients[at].requests.remove(0);
                let (reply, told) = server.carry_out(clients[at].id.client, request, self.mutant);
                let heard = reply.filter(|reply| clients[at].awaits(reply));
                clients[at].replies.extend(heard);
                tell(clients, &told);
            }
            Action::Hear(at) => {
                let reply = clients[at].replies.remove(0);
                clients[at].hear(reply, self.attempts, &mut processes[process(at)], self.mutant);
            }
            Action::Claim(at) => clients[at].start(true, &mut processes[process(at)], self.mutant),
            Action::Enqueue(at) => clients[at].start(false, &mut processes[process(at)], self.mutant),
            Action::Leave(at) => clients[at].leave(self.attempts, &mut processes[process(at)], self.mutant),
            Action::Cut(at) => {
                state.cuts -= 1;
                server.forget(clients[at].id.client);
                clients[at].reconnected(&mut processes[process(at)], self.mutant);
            }
            Action::Crash(at) => {
                state.crashes -= 1;
                clients[at].crash();
                let told = server.end(clients[at].id.client);
                tell(clients, &told);
            }
        }
    }
}

/// Events come in the order of the answers.
fn tell(clients: &mut [Client], told: &[u8]) {
    for client in told {
        let client = &mut clients[usize::from(*client)];
        if client.is_watching() {
            client.replies.push(Reply::Changed);
        }
    }
}

impl Model for Permits {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // A process dies as a whole; here it is the first client.
        assert!(self.local < 2 || self.crashes == 0, "one of several attempts of a process does not die by itself");
        let id = |(client, weight): (u8, &u8)| AttemptId { client, attempt: 0, weight: *weight };
        let clients = (0..).zip(self.weights).map(|client| Client::new(id(client), self.limit)).collect();
        let processes = vec![Process::default(); self.weights.len() + 1];
        vec![State { server: Server::default(), clients, processes, cuts: self.cuts, crashes: self.crashes }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for at in 0..state.clients.len() {
            self.client_actions(state, at, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.step(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("within the limit", |model: &Self, state: &State| {
                state.holders().map(|client| client.id.weight).sum::<u8>() <= model.limit
            }),
            Property::always("holders have their permits", |_, state: &State| {
                let has = |id| state.server.leases.iter().any(|lease| lease.id == id);
                state.holders().all(|client| has(client.id))
            }),
            Property::always("tokens grow", |_, state: &State| !state.server.token_went_back),
            Property::always("one grant each", |_, state: &State| {
                let leases = &state.server.leases;
                leases.iter().all(|one| leases.iter().filter(|two| two.id == one.id).count() == 1)
            }),
            Property::always("nothing is left", |_, state: &State| !state.has_residue()),
            Property::always("waiters get on", |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("somebody waits for a permit while another holds", |_, state: &State| {
                state.holders().count() > 0 && state.clients.iter().any(|client| client.phase == Phase::WatchingLeases)
            }),
            Property::sometimes("permits are too many, and are released", |_, state: &State| {
                state.clients.iter().any(|client| client.phase == Phase::GivingBack)
            }),
        ];
        if self.local > 1 {
            properties.push(Property::sometimes("a waiter is told that it is first", |_, state: &State| {
                state.clients.iter().any(|client| client.replies.contains(&Reply::Gone { is_first: true }))
            }));
            properties.push(Property::sometimes("permits are handed over", |_, state: &State| {
                let has = |reply: &Reply| matches!(reply, Reply::HandedOver { outcome: TakingEvent::Made, .. });
                state.clients.iter().any(|client| client.replies.iter().any(has))
            }));
        }
        properties
    }
}

impl State {
    fn holders(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter(|client| client.phase == Phase::Holding)
    }

    /// Whether a node of an attempt that has ended is at the servers, and nothing is under way that would remove it.
    fn has_residue(&self) -> bool {
        let server = &self.server;
        let seats = server.queue.iter().map(|place| place.id).chain(server.leases.iter().map(|lease| lease.id));
        seats.into_iter().any(|id| id.attempt < self.clients[usize::from(id.client)].id.attempt)
    }
}
