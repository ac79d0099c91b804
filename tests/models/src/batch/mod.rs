//! Requests that go together: acquisitions of many tasks of one client, as one request with an outcome for each
//! (`docs/decisions/0048-a-model-of-what-goes-together.md`).
//!
//! The machine that ships decides which of them are next (`lock_core::driver::Batch`). `client/` is its shell, as in `lock-redis`
//! (`client/link/batches.rs`, `client/links/`, `release.rs`): the tasks that send, the leaving, the going on by itself, and the cancellation.
//! `server.rs` is the server. Attempts come in one order, join, give up, or have no time left. The task that sends dies, and so does one
//! that waits for an answer. Connections break with requests still under way, which are carried out later or never. The server refuses a
//! batch, or a part of it.
//!
//! A batch is one script, carried out in one step, or one pipeline, which breaks in its middle. The second is what `lock-memcached` sends,
//! where claims are told their answers all at once, with the last look at the epoch. It has a connection for each batch, and repeats a
//! cancellation until nothing can come any more. Here that is the client that may not end its former connections at the server, which
//! `lock-redis` knows too. `lock-zk` has a queue of its own, without this machine (`client/zookeeper_client/waiting.rs`), and so has a
//! quorum of `lock-redis` (`quorum/client/send_queue/`): they are left out.
//!
//! Left out are also clocks and leases, the bytes of requests, releases that go together, the queues of locks and the long way to them, which
//! `lease/` explores, and the nonces in replies, by which `lock-redis` finds those that are meant for others.
//!
//! So the properties guard the machine, and the rules that a shell of it has to keep. That those that ship keep them is shown by other means.

mod actions;
mod attempt;
mod calm;
mod client;
mod mutant;
mod properties;
mod server;
mod wire;

use stateright::{Model, Property};

use attempt::{Attempt, Phase};
use client::Client;
use server::Server;
use wire::{Link, Request};

pub use actions::Action;
pub use mutant::Mutant;

/// The most requests that go together.
const MOST: usize = 2;

/// Some attempts of one client, and how much may go wrong.
#[derive(Debug, Clone)]
pub struct BatchedAttempts {
    /// The lock that each attempt asks for, in the order in which they come.
    pub locks: &'static [u8],
    /// Whether a batch is a pipeline, of which a part may be carried out. Otherwise it is a script.
    pub is_pipeline: bool,
    /// Whether those who wait may be enough to be sent at once, before the task that sees to them runs.
    pub hurries: bool,
    /// Whether a new connection ends the one before at the server.
    pub kills: bool,
    /// The number of attempts that give up.
    pub gone: u8,
    /// The number of attempts whose time is over before they are answered.
    pub late: u8,
    /// The number of connections that break.
    pub cuts: u8,
    /// The number of connections that are given up while they live.
    pub doubts: u8,
    /// The number of tasks that die: one that sends, or one that waits for an answer.
    pub deaths: u8,
    /// The number of requests that the server refuses, or refuses in part.
    pub refusals: u8,
    /// The mistake that is made on purpose.
    pub mutant: Option<Mutant>,
}

/// Everything there is at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    server: Server,
    client: Client,
    link: Link,
    gone: u8,
    late: u8,
    cuts: u8,
    doubts: u8,
    deaths: u8,
    refusals: u8,
}

impl BatchedAttempts {
    /// The server carries out one request, or the next part of a pipeline, but for those that it refuses.
    fn serve(&self, state: &mut State, former: bool, refused: &[usize]) {
        let State { server, client, link, .. } = state;
        let queue = if former { &mut link.former } else { &mut link.requests };
        let most = if self.is_pipeline { 1 } else { usize::MAX };
        server.carry_out((&mut queue[0], former && !self.kills), self.locks, most, refused, self.mutant);
        if !queue[0].left().is_empty() {
            return;
        }
        let sent = queue.remove(0);
        if sent.request == Request::Kill {
            let lost = link.kill_former();
            lost.iter().for_each(|request| client.loses(request, self.mutant));
        }
        // Only what is on a connection that lives is answered.
        if sent.is_awaited {
            let replies = if former { &mut link.former_replies } else { &mut link.replies };
            replies.push(sent);
        }
    }

    /// The server refuses the next request, but for the acquisitions of a pipeline behind the next one.
    fn refuse(&self, state: &mut State, these: &[usize]) {
        state.refusals -= 1;
        if let Request::Acquire(at) = state.link.requests[0].request {
            state.client.attempts[at].is_hit = true;
        }
        self.serve(state, false, these);
    }

    fn step(&self, state: &mut State, action: Action) {
        let State { server, client, link, .. } = state;
        let mutant = self.mutant;
        match action {
            Action::Come(at) => client.comes(at, false),
            Action::ComeAsEnough(at) => client.comes(at, true),
            Action::GiveUp(at) => {
                state.gone -= 1;
                client.gives_up(at, mutant);
            }
            Action::RunOut(at) => {
                state.late -= 1;
                let attempt = &mut client.attempts[at];
                (attempt.is_late, attempt.is_hit) = (true, true);
            }
            Action::TimeOut(at) => client.is_timed_out(at, mutant),
            Action::Ask(at) => client.asks(at, link, self.kills, mutant),
            Action::End(at) => client.ends(at, link),
            Action::Look(sender) => client.looks(sender, link, mutant),
            Action::Take(sender, most) => client.takes(sender, most, mutant),
            Action::Return(sender) => client.has_no_turn(sender),
            Action::Put(sender) => client.puts(sender, link, mutant),
            Action::Die(sender) => {
                state.deaths -= 1;
                client.dies(sender, mutant);
            }
            Action::Forsake(at) => {
                state.deaths -= 1;
                if let Some(batch) = link.forsake(at, mutant) {
                    client.loses(&batch, mutant);
                }
            }
            Action::Serve => self.serve(state, false, &[]),
            Action::Refuse => {
                let these = link.requests[0].left().to_vec();
                self.refuse(state, &these);
            }
            Action::RefuseOne(at) => self.refuse(state, &[at]),
            Action::ServeFormer => self.serve(state, true, &[]),
            Action::Expire => {
                server.expire();
                let lost = link.outlive_former();
                lost.iter().for_each(|request| client.loses(request, mutant));
            }
            Action::LoseReplies => {
                let lost = link.lose_replies();
                lost.iter().for_each(|request| client.loses(request, mutant));
            }
            Action::Hear | Action::HearFormer => {
                let replies = if action == Action::Hear { &mut link.replies } else { &mut link.former_replies };
                let sent = replies.remove(0);
                if sent.is_awaited {
                    client.hears(&sent, link, self.kills, mutant);
                    state.renew();
                }
            }
            Action::Cut => {
                state.cuts -= 1;
                link.give_up();
                let lost = link.lose_replies();
                client.is_cut_off(lost, mutant);
            }
            Action::Doubt => {
                state.doubts -= 1;
                link.give_up();
            }
            Action::Connect => link.connect(self.kills),
            Action::SendAgain => link.send(Request::Batch(client.again.remove(0))),
        }
    }
}

impl Model for BatchedAttempts {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (server, client) = (Server::new(self.locks), Client::new(self.locks.len()));
        let Self { gone, late, cuts, doubts, deaths, refusals, .. } = *self;
        vec![State { server, client, link: Link::new(), gone, late, cuts, doubts, deaths, refusals }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        (0..state.client.attempts.len()).for_each(|at| self.attempt_actions(state, at, actions));
        self.sender_actions(state, actions);
        self.link_actions(state, actions);
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

impl State {
    /// Holders keep their locks from expiring.
    fn renew(&mut self) {
        for (at, attempt) in self.client.attempts.iter().enumerate() {
            if attempt.phase == Phase::Holding {
                self.server.renew(at);
            }
        }
    }

    /// Whether every attempt has come to its end, and no task is left that sends.
    fn is_done(&self) -> bool {
        self.client.attempts.iter().all(Attempt::is_done) && self.client.senders.is_empty()
    }
}
