//! A queue of ephemeral sequential nodes: what `lock-zk` does for the mutex and the read-write lock.
//!
//! The clients (`client.rs`) decide by what ships: `Contention`, which knows a place in the queue, and `SessionLease`. The servers
//! (`ensemble.rs`) are what ZooKeeper promises: requests of one session are answered in order, a session that has moved to another
//! server can no longer write through the former one, and whoever watches a node is told before it sees what came after.
//!
//! Answers get lost with their connection, whether the request was carried out or not; sessions expire while their
//! client sleeps, or is thought to be alive by itself only; processes die. All clocks run at one rate. The leader
//! hears of a heartbeat when the next one is answered, and not before; how often it asks is left out (`session/lease.rs` has tests
//! of its own), and so are followers whose listings lag behind, hand-overs within a process, claims without a queue, and semaphores, whose permits have a model of their own.
//! Time is bounded, by a number of ticks.
//!
//! Undoing an attempt is written once more in `client.rs`, and numbering in `ensemble.rs`: "nothing is left" and "tokens grow" guard
//! these twins. The other properties guard the code that ships.

mod calm;
mod client;
mod ensemble;
mod mutant;

use lock_zk::machine::Role;
use stateright::{Model, Property};

use client::{Client, Phase};
use ensemble::{Ensemble, Reply, Session};

pub use mutant::Mutant;

/// Some clients, each with some attempts, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct Queue {
    /// The number of clients.
    pub clients: u8,
    /// The number of them that are readers: the last ones. The others write if there are any, and want a mutex otherwise.
    pub readers: u8,
    /// The number of times that each of them wants the lock.
    pub attempts: u8,
    /// The time for which a session lives without a heartbeat, in ticks.
    pub timeout: u8,
    /// The number of ticks that pass.
    pub ticks: u8,
    /// The number of connections that break: of the first client, as all are alike.
    pub cuts: u8,
    /// The number of processes that die: of the first client.
    pub crashes: u8,
    /// The mistake that is made on purpose.
    pub mutant: Option<Mutant>,
}

/// Everything there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    ensemble: Ensemble,
    clients: Vec<Client>,
    /// The ticks that have passed.
    now: u8,
    ticks: u8,
    cuts: u8,
    crashes: u8,
}

/// The actions that can come next; the number is a client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Time passes.
    Tick,
    /// The servers carry out the client's next request.
    Serve(usize),
    /// The client takes an answer, or an event.
    Hear(usize),
    /// An attempt begins.
    Start(usize),
    /// The client shows life.
    Heartbeat(usize),
    /// The waiter gives up, or the holder releases.
    Leave(usize),
    /// A client whose session is over opens another.
    Reopen(usize),
    /// The connection breaks and is replaced.
    Cut(usize),
    /// The process dies.
    Crash(usize),
}

impl Queue {
    fn role(&self, client: u8) -> Role {
        match self.readers {
            0 => Role::Lock,
            readers if client + readers >= self.clients => Role::Read,
            _ => Role::Write,
        }
    }

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
            actions.push(Action::Start(at));
        }
        if client.may_leave() {
            actions.push(Action::Leave(at));
        }
        if client.may_send_heartbeat() {
            actions.push(Action::Heartbeat(at));
        }
        if client.left() == 0 {
            actions.push(Action::Reopen(at));
        }
        if at == 0 && state.cuts > 0 && client.is_busy() {
            actions.push(Action::Cut(at));
        }
        if at == 0 && state.crashes > 0 {
            actions.push(Action::Crash(at));
        }
    }

    /// One step. Who is done closes its session: nothing more comes of it.
    fn step(&self, state: &mut State, action: Action) {
        self.happen(state, action);
        let State { ensemble, clients, .. } = state;
        clients.iter().filter(|client| client.phase == Phase::Done).for_each(|client| ensemble.close(client.session));
    }

    fn happen(&self, state: &mut State, action: Action) {
        let State { ensemble, clients, .. } = state;
        match action {
            Action::Tick => {
                state.ticks = state.ticks.saturating_sub(1);
                state.now = state.now.saturating_add(1);
                let told = ensemble.tick();
                clients.iter_mut().for_each(|client| client.look(state.now));
                tell(clients, &told);
            }
            Action::Serve(at) => {
                let request = clients[at].requests.remove(0);
                let (reply, told) = ensemble.carry_out(clients[at].session, request, self.mutant);
                let heard = reply.filter(|reply| clients[at].awaits(reply));
                clients[at].replies.extend(heard);
                tell(clients, &told);
            }
            Action::Hear(at) => {
                let reply = clients[at].replies.remove(0);
                clients[at].hear(reply, state.now, self.attempts, self.mutant);
            }
            Action::Start(at) => clients[at].start(),
            Action::Heartbeat(at) => clients[at].send_heartbeat(state.now),
            Action::Leave(at) => clients[at].leave(self.attempts, self.mutant),
            Action::Reopen(at) => {
                clients[at].reopened(state.now, self.mutant);
                ensemble.open(clients[at].session);
            }
            Action::Cut(at) => {
                state.cuts -= 1;
                clients[at].reconnected(self.mutant);
            }
            Action::Crash(at) => {
                state.crashes -= 1;
                clients[at].crash();
            }
        }
    }
}

/// Events come in the order of the answers.
fn tell(clients: &mut [Client], told: &[Session]) {
    for session in told {
        let client = &mut clients[usize::from(session.client)];
        if client.session == *session && client.phase == Phase::Watching {
            client.replies.push(Reply::Gone);
        }
    }
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let clients: Vec<_> =
            (0..self.clients).map(|client| Client::new(client, self.role(client), self.timeout)).collect();
        let mut ensemble = Ensemble::new(self.timeout);
        clients.iter().for_each(|client| ensemble.open(client.session));
        vec![State { ensemble, clients, now: 0, ticks: self.ticks, cuts: self.cuts, crashes: self.crashes }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.ticks > 0 {
            actions.push(Action::Tick);
        }
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
            Property::always("exclusion", |model: &Self, state: &State| {
                let mut believers = state.believers(model);
                believers.all(|client| client.id.role == Role::Read) || state.believers(model).count() <= 1
            }),
            Property::always("belief is true", |model: &Self, state: &State| {
                state.believers(model).all(|client| state.is_backed(client))
            }),
            Property::always("tokens grow", |_, state: &State| !state.ensemble.token_went_back),
            Property::always("one place each", |_, state: &State| {
                let queue = &state.ensemble.queue;
                queue
                    .iter()
                    .all(|one| queue.iter().filter(|two| (two.id, two.session) == (one.id, one.session)).count() == 1)
            }),
            Property::always("nothing is left", |_, state: &State| !state.has_residue()),
            Property::always("waiters get on", |model: &Self, state: &State| model.comes_to_rest(state)),
            Property::sometimes("somebody waits while another holds", |model: &Self, state: &State| {
                state.believers(model).count() == 1
                    && state.clients.iter().any(|client| client.phase == Phase::Watching)
            }),
            Property::sometimes("a session ends under a holder", |_, state: &State| {
                let ended = |client: &Client| state.ensemble.lives_for(client.session).is_none();
                state.clients.iter().any(|client| client.phase == Phase::Holding && ended(client))
            }),
            Property::sometimes("a node outlives what its client believes", |_, state: &State| {
                let former = |client: &Client, session: Session| {
                    session.client == client.session.client && session.number < client.session.number
                };
                state.clients.iter().any(|client| state.ensemble.queue.iter().any(|node| former(client, node.session)))
            }),
        ];
        if self.readers > 1 {
            properties.push(Property::sometimes("readers hold together", |model: &Self, state: &State| {
                state.believers(model).count() > 1
            }));
        }
        properties
    }
}

impl State {
    fn believers<'a>(&'a self, model: &'a Queue) -> impl Iterator<Item = &'a Client> {
        self.clients.iter().filter(|client| client.believes(model.mutant))
    }

    /// Whether the client's node is the first, or one of readers who are, for as long as it believes.
    fn is_backed(&self, client: &Client) -> bool {
        let queue = &self.ensemble.queue;
        let place = queue.iter().position(|node| Some(&node.zxid) == client.contention.node());
        let together = |to| queue[..=to].iter().all(|node| node.id.role == Role::Read);
        place.is_some_and(|place| place == 0 || together(place))
            && self.ensemble.lives_for(client.session).is_some_and(|left| left >= client.left())
    }

    /// Whether a node of an attempt that has ended is in the queue.
    fn has_residue(&self) -> bool {
        self.ensemble.queue.iter().any(|node| {
            let client = &self.clients[usize::from(node.id.client)];
            client.phase != Phase::Crashed && node.id.attempt < client.id.attempt
        })
    }
}
