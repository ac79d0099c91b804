//! A lock in a store that neither queues nor pushes, with waiters who hand it to each other: what `lock-memcached` does for the mutex.
//!
//! The code that ships decides for the clients (`lock_memcached::machine`: turns, the outcome of a hand-over, the verdicts of the
//! epoch); `client.rs` is its shell, and `server.rs` the server. Steps may be delayed for any time: that is a
//! client that pauses, or a slow network. Answers get lost, and what they answered is carried out late, or never. The server
//! restarts, forgets everything, and gives the same CAS numbers once more. Waiters give up, or are kept without being polled.
//!
//! All clocks run at one rate, in whole seconds, so the margin is one of them. Left out are renewals, waits that end at a
//! deadline, and failures between the steps of tending the epoch, and of finding out whose an item is.
//!
//! Undoing an attempt is written once more in `client.rs`, and so "nothing is left" guards a twin. The other properties guard the code
//! that ships, with its shell.

mod calm;
mod client;
mod mutant;
mod server;
mod waiter;

use std::time::Duration;

use lock_core::clock::BootInstant;
use stateright::{Model, Property};

use client::Client;
use server::{FIRST_CAS, Item, Own, Request, Server};
use waiter::{Phase, Waiter};

pub use mutant::Mutant;

/// Of a lease, in seconds.
const TTL: u8 = 2;
const LONGEST: Duration = Duration::from_secs(2);
/// The time for which an item is there beyond its lease.
const MARGIN: u8 = 1;
/// The time within which a request is carried out, if it ever is.
const OP_TIMEOUT: u8 = 1;
/// The TTLs of the epoch's item.
const CLOSED_FOR: i64 = 30 * 24 * 60 * 60;
const OPEN_FOR: i64 = 5 * 365 * 24 * 60 * 60;
/// The second by which the server is restarted: time is left for what follows.
const RESTARTS_BEFORE: u8 = 2;
/// The most hand-overs in a row.
const ROW: u8 = 8;

/// Two clients with some waiters each, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct HandOver {
    /// The number of waiters of each client.
    pub waiters: [u8; 2],
    /// The number of times that each of them wants the lock.
    pub attempts: u8,
    /// The number of seconds that pass.
    pub seconds: u8,
    /// The number of answers that are lost.
    pub losses: u8,
    /// The number of restarts of the server.
    pub restarts: u8,
    /// The number of waiters that give up.
    pub gone: u8,
    /// The number of waiters that are kept without being polled.
    pub still: u8,
    /// The mistake that is made on purpose.
    pub mutant: Option<Mutant>,
}

/// Everything there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    server: Server,
    clients: [Client; 2],
    /// Requests whose senders do not wait for them any more, and when they were sent.
    late: Vec<(Request, u8)>,
    losses: u8,
    restarts: u8,
    gone: u8,
    still: u8,
}

/// The actions that can come next; the numbers are a client's and a waiter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A second passes.
    Tick,
    /// The waiter comes.
    Start(usize, usize),
    /// The first one tries, or looks.
    Try(usize, usize),
    /// The server carries out the request.
    Serve(usize, usize),
    /// The answer is heard.
    Hear(usize, usize),
    /// The request is given up: it is carried out late, or never, or was.
    Lose(usize, usize),
    /// The server carries out a request that was given up.
    ServeLate(usize),
    /// The holder releases the lock.
    Release(usize, usize),
    /// The lock is released, or what an attempt may have is undone.
    End(usize, usize),
    /// A release that is carried out, and not answered.
    LoseEnd(usize, usize),
    /// The waiter gives up.
    GiveUp(usize, usize),
    /// The waiter is not polled any more.
    Keep(usize, usize),
    /// The waiter takes the place of the first one, which is late.
    TakePlace(usize, usize),
    /// The server is restarted.
    Restart,
}

impl HandOver {
    fn waiter_actions(&self, state: &State, client: usize, at: usize, actions: &mut Vec<Action>) {
        let waiter = &state.clients[client].waiters[at];
        if waiter.is_still {
            return;
        }
        match (waiter.phase, waiter.asks) {
            // Waiters are alike: they begin in one order.
            (Phase::Idle, _) if self.may_start(&state.clients[client].waiters, at) => {
                actions.push(Action::Start(client, at));
            }
            (Phase::Holding { .. }, _) => actions.push(Action::Release(client, at)),
            (_, Some((_, _, None))) => {
                actions.push(Action::Serve(client, at));
                if state.losses > 0 {
                    actions.push(Action::Lose(client, at));
                }
            }
            (_, Some((_, _, Some(_)))) => {
                actions.push(Action::Hear(client, at));
                if state.losses > 0 {
                    actions.push(Action::Lose(client, at));
                }
            }
            (phase, _) if state.clients[client].may_end(at, &state.server) => {
                actions.push(Action::End(client, at));
                if state.losses > 0 && phase != Phase::Undoing {
                    actions.push(Action::LoseEnd(client, at));
                }
            }
            _ if state.clients[client].may_try(at, state.server.now, self.mutant) => {
                actions.push(Action::Try(client, at))
            }
            _ if state.clients[client].may_take_place(at, state.server.now, self.mutant) => {
                actions.push(Action::TakePlace(client, at));
            }
            _ => {}
        }
        if client == 0 && state.still > 0 && state.clients[client].may_be_still(at) {
            actions.push(Action::Keep(client, at));
        }
        if client == 0 && state.gone > 0 && waiter.waits() {
            actions.push(Action::GiveUp(client, at));
        }
    }

    /// Waiters are alike: they begin in one order.
    fn may_start(&self, waiters: &[Waiter], at: usize) -> bool {
        at == 0 || waiters[at].left < self.attempts || waiters[at - 1].left < self.attempts
    }

    fn step(&self, state: &mut State, action: Action) {
        let State { server, clients, late, .. } = state;
        let (now, mutant) = (server.now, self.mutant);
        match action {
            Action::Tick => {
                server.tick();
                late.retain(|(_, sent)| server.now <= sent + OP_TIMEOUT);
                for client in clients {
                    client.yields = false;
                    client.ticks(server.now);
                }
            }
            Action::Start(client, at) => clients[client].starts(at, now),
            Action::Try(client, at) => clients[client].tries(at, now),
            Action::Serve(client, at) => {
                if let Some((request, _, reply)) = &mut clients[client].waiters[at].asks {
                    *reply = Some(server.carry_out(*request, mutant));
                }
            }
            Action::Hear(client, at) => clients[client].hears(at, server, mutant),
            Action::Lose(client, at) => {
                state.losses -= 1;
                if let Some((request, sent, reply)) = &mut clients[client].waiters[at].asks
                    && reply.take().is_none()
                    && now <= *sent + OP_TIMEOUT
                {
                    late.push((*request, *sent));
                }
                clients[client].hears(at, server, mutant);
            }
            Action::ServeLate(request) => {
                let (request, _) = late.remove(request);
                server.carry_out(request, mutant);
            }
            Action::Release(client, at) => clients[client].releases(at, now, mutant),
            Action::End(client, at) => clients[client].ends(at, server, false, mutant),
            Action::LoseEnd(client, at) => {
                state.losses -= 1;
                clients[client].ends(at, server, true, mutant);
            }
            Action::GiveUp(client, at) => {
                state.gone -= 1;
                clients[client].gives_up(at, now, mutant);
            }
            Action::Keep(client, at) => {
                state.still -= 1;
                clients[client].waiters[at].is_still = true;
            }
            Action::TakePlace(client, at) => clients[client].takes_place(at, now, mutant),
            Action::Restart => {
                state.restarts -= 1;
                // Connections end with the process that they lead to, and what was not carried out with them.
                late.clear();
                server.restart();
                for client in clients {
                    for at in 0..client.waiters.len() {
                        if matches!(client.waiters[at].asks, Some((_, _, None))) {
                            client.hears(at, server, mutant);
                        }
                    }
                }
            }
        }
    }
}

impl Model for HandOver {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = Server::new();
        let [first, second] = self.waiters;
        let clients = [(0, first), (first, second)]
            .map(|(at, waiters)| Client::new(at, waiters, self.attempts, self.still > 0, &server));
        let Self { losses, restarts, gone, still, .. } = *self;
        vec![State { server, clients, late: Vec::new(), losses, restarts, gone, still }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for client in 0..2 {
            for at in 0..state.clients[client].waiters.len() {
                self.waiter_actions(state, client, at, actions);
            }
        }
        actions.extend((0..state.late.len()).map(Action::ServeLate));
        if state.restarts > 0 && state.server.now < RESTARTS_BEFORE {
            actions.push(Action::Restart);
        }
        if state.server.now < self.seconds && !state.is_done() {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        self.step(&mut state, action);
        if state.server.item.is_none() && !state.is_busy() && !state.waiters().any(|waiter| waiter.own().is_some()) {
            // Nobody knows a number any more: they are finitely many.
            state.server.cas = if state.server.life == 0 { FIRST_CAS } else { 0 };
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("exclusion", |_: &Self, state: &State| state.believers().count() <= 1),
            Property::always("a grant does not outlive its claim", |_, state: &State| {
                state.believers().all(|(own, until)| {
                    let kept = |item: Item| item.nonce == own.nonce && item.ends >= until;
                    own.life < state.server.life || state.server.item.is_some_and(kept)
                })
            }),
            Property::always("others have their turn", |_, state: &State| {
                !state.clients.iter().any(|client| client.is_greedy || client.row > ROW)
            }),
            Property::always("a release wakes the first one", |_, state: &State| {
                !state.clients.iter().any(|client| client.sleeps_on)
            }),
            Property::always("the first one knows it", |_, state: &State| {
                state.clients.iter().all(Client::first_knows_it)
            }),
            Property::always("what was held is no loss", |_, state: &State| {
                !state.clients.iter().any(|client| client.false_loss)
            }),
            Property::always("nothing is left", |_, state: &State| {
                !state.waiters().any(|waiter| waiter.has_nothing(state.server.now) && state.server.holds(waiter.nonce))
            }),
            Property::always("waiters get on", |model: &Self, state: &State| {
                // A request that is under way leads to a state without it.
                state.is_busy() || model.comes_to_rest(state)
            }),
        ];
        if self.waiters[0] > 1 {
            properties.push(Property::sometimes("a lock is handed over", |_, state: &State| {
                state.waiters().any(|waiter| matches!(waiter.phase, Phase::HandingOver { .. }))
            }));
        }
        if self.waiters[1] > 0 {
            properties.push(Property::sometimes("both clients want the lock", |_, state: &State| {
                state.clients.iter().all(|client| client.waiters.iter().any(Waiter::waits))
            }));
        }
        if self.still > 0 {
            properties.push(Property::sometimes(
                "the lock is taken past one that is not polled",
                |_, state: &State| {
                    let [first, _] = &state.clients;
                    let still =
                        first.waiters.iter().any(|waiter| waiter.is_still && !matches!(waiter.phase, Phase::Handed));
                    still && first.waiters.iter().any(|waiter| matches!(waiter.phase, Phase::Holding { .. }))
                },
            ));
        }
        if self.restarts > 0 {
            properties.push(Property::sometimes("somebody holds the lock after a restart", |_, state: &State| {
                state.believers().any(|(own, _)| own.life > 0)
            }));
        }
        properties
    }
}

impl State {
    fn waiters(&self) -> impl Iterator<Item = &Waiter> {
        self.clients.iter().flat_map(|client| &client.waiters)
    }

    /// The items whose holders believe to hold the lock, and until when.
    fn believers(&self) -> impl Iterator<Item = (Own, u8)> {
        self.waiters().filter_map(|waiter| waiter.believes(self.server.now))
    }

    fn is_busy(&self) -> bool {
        !self.late.is_empty() || self.waiters().any(|waiter| waiter.asks.is_some())
    }

    fn is_done(&self) -> bool {
        self.waiters().all(|waiter| waiter.phase == Phase::Done || waiter.is_still)
    }
}

/// The clients' clocks: the origin is long ago.
fn instant(second: u8) -> BootInstant {
    BootInstant::from_origin(Duration::from_secs(1000 + u64::from(second)))
}

/// The first whole second that is not before this instant.
fn second(instant: BootInstant) -> u8 {
    let millis = instant.since_origin().as_millis().saturating_sub(1_000_000);
    u8::try_from(millis.div_ceil(1000)).unwrap_or(u8::MAX)
}

fn since_1970(second: u8) -> Duration {
    Duration::from_secs(1_000_000 + u64::from(second))
}
