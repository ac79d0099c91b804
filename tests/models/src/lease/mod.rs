//! A lock with a lease in a store, a queue beside it, and hand-over by push: what `lock-redis` does for the mutex.
//!
//! It stands for `store/scripts/acquire_free.lua`, `acquire.lua`, `release.lua`, `release_promote.lua`, `cancel.lua`,
//! `heartbeat.lua`, `mutex/renew.lua` and `queue.lua` (`server.rs`), for `acquire.rs`, `release.rs` and
//! `client/link/predecessors/mod.rs` of `lock-redis` and `lease/state/` of `lock-core` (`client.rs`). What a waiter believes and when
//! it asks is decided by the machine of `lock-redis` itself, `wait/machine/`.
//!
//! Every step may be delayed for any time: that is a client that pauses, a process that stalls, a slow network. Answers
//! and pushes get lost, connections break with requests still under way, processes die. All clocks run at one rate, so
//! the margin is left out; so are the server's own stalls and restarts, and keys that are shared with other libraries. Waiters of one client
//! are explored in `reply/`. Time is counted from now, in both directions, and tokens by their order, so that the
//! states are finitely many although neither time nor tokens end.

mod calm;
mod client;
mod mutant;
mod server;
mod tokens;
mod wire;

use std::time::Duration;

use lock_core::clock::BootInstant;
use stateright::{Model, Property};

use client::{Client, Phase};
use server::{Run, Server};
use wire::{Link, Nonce};

pub use mutant::Mutant;

/// A tick: as long as no heartbeat of the machine takes to be due again.
const TICK: Duration = Duration::from_secs(1);
/// The present.
const NOW: BootInstant = BootInstant::from_origin(Duration::from_secs(1000));
/// Of a lease, in ticks.
const TTL: u8 = 2;
/// The time for which a lock is kept for the waiter that it was handed to.
const CLAIM: u8 = 1;
/// The time without a sign after which a waiting client counts as dead.
const LIVENESS: u8 = 1;

/// Some clients, each with some attempts, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct LeaseLock {
    /// The number of clients.
    pub clients: u8,
    /// The number of times that each of them wants the lock.
    pub attempts: u8,
    /// The number of connections that break: of the first client, as all are alike.
    pub cuts: u8,
    /// The number of processes that die: of the first client.
    pub crashes: u8,
    /// Whether a waiter hears pushes and sends heartbeats also while a request of its own is under way. Off where the states
    /// would be too many for a test: then both wait for the answer, which the network may always make them do.
    pub overlaps: bool,
    /// The mistake that is made on purpose.
    pub mutant: Option<Mutant>,
}

/// Everything there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    server: Server,
    clients: Vec<Client>,
    links: Vec<Link>,
    cuts: u8,
    crashes: u8,
}

/// The actions that can come next; the number is a client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The server carries out what came over the client's connection.
    Serve(usize),
    /// The server carries out what was left in a broken connection.
    ServeFormer(usize),
    /// The client takes an answer.
    Hear(usize),
    /// The client takes this push.
    HearPush(usize, usize),
    /// This push is lost.
    LosePush(usize, usize),
    /// An attempt begins.
    Start(usize),
    /// The waiter asks how things stand.
    Heartbeat(usize),
    /// The holder renews its lease.
    Renew(usize),
    /// The waiter gives up, or the holder releases.
    Leave(usize),
    /// The connection breaks and is replaced.
    Cut(usize),
    /// The process dies.
    Crash(usize),
}

impl LeaseLock {
    fn client_actions(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let client = &state.clients[at];
        match client.phase {
            Phase::Idle => actions.push(Action::Start(at)),
            Phase::Waiting | Phase::Holding { .. } => actions.push(Action::Leave(at)),
            Phase::Ending(_) | Phase::Done | Phase::Crashed => {}
        }
        if client.may_send_heartbeat() && self.may_overlap(client) && self.mutant != Some(Mutant::NoHeartbeats) {
            actions.push(Action::Heartbeat(at));
        }
        if client.may_renew() {
            actions.push(Action::Renew(at));
        }
        if at == 0 && state.cuts > 0 && state.links[at].is_busy() && !client.is_over() {
            actions.push(Action::Cut(at));
        }
        if at == 0 && state.crashes > 0 && !client.is_over() {
            actions.push(Action::Crash(at));
        }
    }

    fn may_overlap(&self, client: &Client) -> bool {
        self.overlaps || !client.asks()
    }

    fn link_actions(&self, state: &State, at: usize, actions: &mut Vec<Action>) {
        let link = &state.links[at];
        if !link.requests.is_empty() {
            actions.push(Action::Serve(at));
        }
        if !link.former.is_empty() {
            actions.push(Action::ServeFormer(at));
        }
        if !link.replies.is_empty() {
            actions.push(Action::Hear(at));
        }
        for push in 0..link.pushes.len() {
            if self.may_overlap(&state.clients[at]) {
                actions.push(Action::HearPush(at, push));
            }
            actions.push(Action::LosePush(at, push));
        }
    }

    /// The server carries out one request. Only what is on a connection that lives is answered.
    fn serve(&self, state: &mut State, at: usize, former: bool) {
        let link = &mut state.links[at];
        let request = if former { link.former.remove(0) } else { link.requests.remove(0) };
        if request == wire::Request::Kill {
            link.former.clear();
        }
        let mut run = Run { server: &mut state.server, pushes: Vec::new(), mutant: self.mutant };
        let reply = run.carry_out(request);
        for push in run.pushes {
            let to = usize::from(push.nonce.client);
            if state.clients[to].nonce == push.nonce && !state.clients[to].is_over() {
                state.links[to].push(push);
            }
        }
        if !former && state.clients[at].awaits(reply) {
            state.links[at].replies.push(reply);
        }
    }

    fn step(&self, state: &mut State, action: Action) {
        let State { server, clients, links, .. } = state;
        match action {
            Action::Tick => {
                server.tick();
                clients.iter_mut().for_each(Client::tick);
            }
            Action::Serve(at) => self.serve(state, at, false),
            Action::ServeFormer(at) => self.serve(state, at, true),
            Action::Hear(at) => {
                let reply = links[at].replies.remove(0);
                clients[at].hear(reply, &mut links[at], self.attempts, self.mutant);
            }
            Action::HearPush(at, push) => {
                let push = links[at].pushes.remove(push);
                clients[at].hear_push(push, &mut links[at], self.mutant);
            }
            Action::LosePush(at, push) => {
                links[at].pushes.remove(push);
            }
            Action::Start(at) => clients[at].start(&mut links[at]),
            Action::Heartbeat(at) => clients[at].send_heartbeat(&mut links[at]),
            Action::Renew(at) => clients[at].renew(&mut links[at]),
            Action::Leave(at) => clients[at].leave(&mut links[at], self.attempts, self.mutant),
            Action::Cut(at) => {
                links[at].cut();
                clients[at].reconnected(&mut links[at], self.mutant);
                state.cuts -= 1;
            }
            Action::Crash(at) => {
                clients[at].crash(&mut links[at]);
                state.crashes -= 1;
            }
        }
    }
}

impl Model for LeaseLock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            server: Server::new(usize::from(self.clients)),
            clients: (0..self.clients).map(Client::new).collect(),
            links: vec![Link::default(); usize::from(self.clients)],
            cuts: self.cuts,
            crashes: self.crashes,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for at in 0..state.clients.len() {
            self.client_actions(state, at, actions);
            self.link_actions(state, at, actions);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.step(&mut state, action);
        state.clients.iter_mut().for_each(Client::round);
        tokens::by_order(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("exclusion", |_: &Self, state: &State| state.believers().count() <= 1),
            Property::always("belief is true", |_: &Self, state: &State| {
                state.believers().all(|client| state.is_backed(client))
            }),
            Property::always("a passed deadline is final", |_, state: &State| {
                !state.believers().any(|client| matches!(client.phase, Phase::Holding { lapsed: true, .. }))
            }),
            Property::always("tokens grow", |_, state: &State| !state.server.token_went_back),
            Property::always("renewed by its holder only", |_, state: &State| {
                state.server.lock.as_ref().is_none_or(|grant| grant.extended_by == grant.nonce)
            }),
            Property::always("one place each", |_, state: &State| {
                !state.server.queue.iter().any(|waiter| state.server.holds(*waiter))
            }),
            Property::always("nothing is left", |_, state: &State| !state.has_residue()),
            Property::always("waiters get on", |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("somebody waits while another holds", |_, state: &State| {
                state.believers().count() == 1 && !state.server.queue.is_empty()
            }),
            Property::sometimes("a holder overslept", |_, state: &State| {
                state.clients.iter().any(|client| matches!(client.phase, Phase::Holding { left: 0, .. }))
            }),
            Property::sometimes("a push comes late", |_, state: &State| {
                let late = |(client, link): (&Client, &Link)| {
                    link.pushes.iter().any(|push| push.nonce == client.nonce && !state.server.holds(push.nonce))
                };
                state.clients.iter().zip(&state.links).any(late)
            }),
        ]
    }
}

impl State {
    fn believers(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().filter(|client| client.believes().is_some())
    }

    /// Whether the server keeps the lock for this client for as long as it believes.
    fn is_backed(&self, client: &Client) -> bool {
        let grant = self.server.lock.as_ref().filter(|grant| grant.nonce == client.nonce);
        grant.is_some_and(|grant| Some(grant.left) >= client.believes())
    }

    /// Whether something of an attempt that has ended is at the server.
    fn has_residue(&self) -> bool {
        let ended = |nonce: Nonce| {
            let client = &self.clients[usize::from(nonce.client)];
            client.phase != Phase::Crashed && nonce.attempt < client.nonce.attempt
        };
        let holder = self.server.lock.as_ref().map(|grant| grant.nonce);
        self.server.queue.iter().copied().chain(holder).any(ended)
    }
}
