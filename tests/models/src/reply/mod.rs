//! A hand-over in the reply: what `lock-redis` does where the next in line is a waiter of the client that releases
//! (`docs/decisions/0036-a-whole-lease-in-the-reply.md`).
//!
//! The reply to a release or a cancellation names the next holder if that is of the same client, with its whole lease, from when the
//! request was sent. A waiter of another client has a push, and a claim time from its own last question. A reply that is
//! lost, or that nobody waits for any more, has all waiters of its client ask at once.
//!
//! The machine of `lock-redis` decides for the waiters as it ships (`wait/machine/`), several of them in one client; `client.rs` is its
//! shell, and `server.rs` the scripts, each as one step. The model begins where the lock is held and all others wait, in each order. Steps
//! of the first client may be delayed for any time, its connections break with requests still under way, its replies are lost, its
//! releases dropped, its waiters give up, and its process dies. Another client acts whenever it likes, and what it asks is
//! answered at once. Pushes to either are delayed or lost.
//!
//! A release that is sent again counts from when the sending went out that is answered. No earlier one can have let anybody in whom
//! that answer names: it finds its grant gone then, and names nobody.
//!
//! All clocks run at one rate, in whole seconds. Left out is what `lease/` explores: how a waiter comes into the queue,
//! renewals, attempts that follow each other, and delays in several clients at once. So are the short ways, by which nothing is handed
//! over, and what a batch has in common; the server's own stalls and restarts; locks of other kinds, and keys that are shared with
//! other libraries.

mod beginning;
mod calm;
mod client;
mod mutant;
mod properties;
mod server;
mod wire;

use std::time::Duration;

use lock_core::clock::BootInstant;
use stateright::{Model, Property};

use client::{Client, Phase};
use server::{Run, Server};
use wire::{Link, Nonce, Request};

pub use mutant::Mutant;

/// A second: as long as no heartbeat of the machine takes to be due again.
const SECOND: Duration = Duration::from_secs(1);
/// Of a lease, in seconds.
const TTL: u8 = 3;
/// The time for which a lock is kept for a waiter of another client.
const CLAIM: u8 = 1;
/// The time without a sign after which a waiting client counts as dead.
const LIVENESS: u8 = 2;

/// Some clients with some waiters each, of which the first one holds the lock, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct ReplyHandOver {
    /// The number of waiters of each client.
    pub waiters: &'static [u8],
    /// The number of seconds that pass.
    pub seconds: u8,
    /// The number of connections that break: of the first client.
    pub cuts: u8,
    /// The number of processes that die: the first client's.
    pub crashes: u8,
    /// The number of releases that are dropped, or whose time is over: of the first client.
    pub drops: u8,
    /// The number of waiters that give up: of the first client.
    pub gone: u8,
    /// The number of pushes that are lost.
    pub losses: u8,
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
    drops: u8,
    gone: u8,
    losses: u8,
}

/// The actions that can come next; the numbers are a client's and a waiter's, or a push's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A second passes.
    Tick,
    /// The server carries out what came over the client's connection.
    Serve(usize),
    /// The server carries out what was left in a broken connection.
    ServeFormer(usize),
    /// The client takes a reply.
    Hear(usize),
    /// The client takes this push.
    HearPush(usize, usize),
    /// This push is lost.
    LosePush(usize, usize),
    /// The client asks how things stand.
    Ask(usize),
    /// The waiter looks for its news.
    Listen(usize, usize),
    /// The holder releases the lock.
    Release(usize, usize),
    /// The release is dropped, or its time is over.
    Drop(usize, usize),
    /// The waiter is cancelled, or its deadline has passed.
    GiveUp(usize, usize),
    /// All that it may have is taken back.
    Undo(usize, usize),
    /// The connection breaks and is replaced.
    Cut(usize),
    /// The process dies.
    Crash(usize),
}

impl ReplyHandOver {
    fn client_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let State { server, clients, links, .. } = state;
        if clients[client].is_dead {
            return;
        }
        for (at, waiter) in clients[client].waiters.iter().enumerate() {
            match waiter.phase {
                Phase::Waiting if waiter.is_woken => actions.push(Action::Listen(client, at)),
                Phase::Holding { .. } => actions.push(Action::Release(client, at)),
                Phase::GaveUp => actions.push(Action::Undo(client, at)),
                Phase::Releasing { is_dropped: false } if client == 0 && state.drops > 0 => {
                    actions.push(Action::Drop(client, at));
                }
                _ => {}
            }
            if client == 0 && state.gone > 0 && matches!(waiter.phase, Phase::Waiting | Phase::Asking) {
                actions.push(Action::GiveUp(client, at));
            }
        }
        if clients[client].may_ask(server.now) && self.mutant != Some(Mutant::NoHeartbeats) {
            actions.push(Action::Ask(client));
        }
        if client == 0 && state.cuts > 0 && links[client].is_busy() {
            actions.push(Action::Cut(client));
        }
        if client == 0 && state.crashes > 0 && !clients[client].is_done() {
            actions.push(Action::Crash(client));
        }
    }

    fn link_actions(&self, state: &State, client: usize, actions: &mut Vec<Action>) {
        let link = &state.links[client];
        if !link.requests.is_empty() {
            actions.push(Action::Serve(client));
        }
        if !link.former.is_empty() {
            actions.push(Action::ServeFormer(client));
        }
        if !link.replies.is_empty() {
            actions.push(Action::Hear(client));
        }
        for push in 0..link.pushes.len() {
            actions.push(Action::HearPush(client, push));
            if state.losses > 0 {
                actions.push(Action::LosePush(client, push));
            }
        }
    }

    /// The server carries out one request. Only what is on a connection that lives is answered.
    fn serve(&self, state: &mut State, client: usize, former: bool) {
        let State { server, clients, links, .. } = state;
        let link = &mut links[client];
        let sent = if former { link.former.remove(0) } else { link.requests.remove(0) };
        if sent.request == Request::Kill {
            link.former.clear();
        }
        let waiter = |nonce: Nonce| &clients[usize::from(nonce.client)].waiters[usize::from(nonce.waiter)];
        let mut run = Run { server, pushes: Vec::new(), mutant: self.mutant };
        let reply = run.carry_out(sent.request, |nonce| waiter(nonce).ticket);
        if !former && sent.is_awaited {
            link.replies.push((sent, reply));
        }
        for push in run.pushes {
            let to = usize::from(push.nonce.client);
            if !clients[to].is_dead && waiter(push.nonce).is_in_machine() {
                links[to].pushes.push(push);
            }
        }
    }

    fn step(&self, state: &mut State, action: Action) {
        self.act(state, action);
        (1..state.clients.len()).for_each(|client| self.answer_at_once(state, client));
    }

    /// Answers what a client other than the first one asks, and has it hear that.
    fn answer_at_once(&self, state: &mut State, client: usize) {
        loop {
            let mut woken = state.clients[client].waiters.iter();
            let woken = woken.position(|waiter| waiter.phase == Phase::Waiting && waiter.is_woken);
            let action = match (woken, &state.links[client]) {
                (Some(at), _) => Action::Listen(client, at),
                (_, link) if !link.requests.is_empty() => Action::Serve(client),
                (_, link) if !link.replies.is_empty() => Action::Hear(client),
                _ => return,
            };
            self.act(state, action);
        }
    }

    fn act(&self, state: &mut State, action: Action) {
        let State { server, clients, links, .. } = state;
        let (now, mutant) = (server.now, self.mutant);
        match action {
            Action::Tick => server.tick(),
            Action::Serve(client) => self.serve(state, client, false),
            Action::ServeFormer(client) => self.serve(state, client, true),
            Action::Hear(client) => {
                let reply = links[client].replies.remove(0);
                clients[client].hears(reply, &mut links[client], now, mutant);
            }
            Action::HearPush(client, push) => {
                let push = links[client].pushes.remove(push);
                clients[client].is_told(push, None, &mut links[client], now, mutant);
            }
            Action::LosePush(client, push) => {
                state.losses -= 1;
                links[client].pushes.remove(push);
            }
            Action::Ask(client) => clients[client].asks_for_all(&mut links[client], now),
            Action::Listen(client, at) => clients[client].listens(at, &mut links[client], now, mutant),
            Action::Release(client, at) => clients[client].releases(at, &mut links[client], now),
            Action::Drop(client, at) => {
                state.drops -= 1;
                clients[client].drops_release(at, &mut links[client], now, mutant);
            }
            Action::GiveUp(client, at) => {
                state.gone -= 1;
                clients[client].gives_up(at, &mut links[client]);
            }
            Action::Undo(client, at) => clients[client].undoes(at, &mut links[client], now, mutant),
            Action::Cut(client) => {
                state.cuts -= 1;
                links[client].cut();
                clients[client].reconnects(&mut links[client], now, mutant);
            }
            Action::Crash(client) => {
                state.crashes -= 1;
                clients[client].dies(&mut links[client]);
            }
        }
    }
}

impl Model for ReplyHandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.beginnings()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..state.clients.len() {
            self.client_actions(state, client, actions);
            self.link_actions(state, client, actions);
        }
        if state.server.now < self.seconds && !state.is_done() {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.step(&mut state, action);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

/// The clients' clocks: the origin is long ago.
fn instant(second: u8) -> BootInstant {
    BootInstant::from_origin(Duration::from_secs(1000 + u64::from(second)))
}

/// The second of an instant.
fn second(instant: BootInstant) -> u8 {
    u8::try_from(instant.since_origin().as_secs().saturating_sub(1000)).unwrap_or(u8::MAX)
}
