//! A client and its waiters: `wait/`, `release.rs` and `client/links.rs` of `lock-redis` around its machine, which is the one that ships.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use lock_core::{Error, FencingToken, GrantId, Phase as ErrorPhase};
use lock_redis::machine::{Action, DueHeartbeat, Enqueued, Granted, HeartbeatReply, Lock, News, Pause, Waiters};

use super::wire::{Link, Nonce, Reply, Request, Sent, Told};
use super::{Mutant, SECOND, instant, second};
use crate::one_lock::OneLock;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    number: u8,
    /// The machine wakes waiters by their position.
    machine: Waiters<OneLock, usize>,
    heartbeat: Option<DueHeartbeat<OneLock>>,
    pub(super) waiters: Vec<Waiter>,
    /// Whether the process is gone.
    pub(super) is_dead: bool,
}

/// One waiter, which wants the lock once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) nonce: Nonce,
    pub(super) ticket: u8,
    pub(super) phase: Phase,
    /// Whether it was woken, and has not looked for its news.
    pub(super) is_woken: bool,
    /// Whether its client was told of a grant when it had given up.
    pub(super) is_unwanted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Waiting,
    /// It asks again under its nonce.
    Asking,
    Holding {
        /// The second in which its lease is over.
        until: u8,
    },
    /// The release is sent until it is answered: by its caller, or by the reaper if that has dropped it.
    Releasing {
        is_dropped: bool,
    },
    /// It was cancelled, or its deadline has passed, and nothing was sent since.
    GaveUp,
    /// The cancellation is sent until it is answered.
    Undoing,
    Done,
}

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let asked_for = self.heartbeat.as_ref().map(|due| &due.nonces);
        (&self.machine, asked_for, &self.waiters, self.is_dead).hash(state);
    }
}

impl Client {
    /// A client whose waiters wait in the queue, but for one that holds the lock until this second.
    pub(super) fn new(number: u8, tickets: &[u8], holds_until: Option<u8>) -> Self {
        let mut machine = Waiters::default();
        let mut waiters = Vec::new();
        for (at, (&ticket, waiter)) in tickets.iter().zip(0..).enumerate() {
            let nonce = Nonce { client: number, waiter };
            let until = holds_until.filter(|_| at == 0);
            let phase = until.map_or(Phase::Waiting, |until| Phase::Holding { until });
            if phase == Phase::Waiting {
                machine.enter(id(nonce), at);
                let reply = enqueued(0, ticket, true, 1);
                // Nobody was forgotten.
                let _ = machine.queued(instant(0), id(nonce), &OneLock, reply);
            }
            waiters.push(Waiter { nonce, ticket, phase, is_woken: false, is_unwanted: false });
        }
        Self { number, machine, heartbeat: None, waiters, is_dead: false }
    }

    /// Whether a heartbeat is due.
    pub(super) fn may_ask(&self, now: u8) -> bool {
        !self.is_dead && self.heartbeat.is_none() && self.machine.next(instant(now)) <= instant(now)
    }

    /// Whether a heartbeat is on its way, or due.
    pub(super) fn asks(&self, now: u8) -> bool {
        self.heartbeat.is_some() || self.may_ask(now)
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_dead || self.waiters.iter().all(|waiter| waiter.phase == Phase::Done)
    }

    pub(super) fn asks_for_all(&mut self, link: &mut Link, now: u8) {
        self.heartbeat = self.machine.due(instant(now), 1).0.pop();
        link.send(Request::Heartbeat(self.number), now);
    }

    /// The holder releases the lock.
    pub(super) fn releases(&mut self, at: usize, link: &mut Link, now: u8) {
        self.waiters[at].phase = Phase::Releasing { is_dropped: false };
        link.send(Request::Release(self.waiters[at].nonce), now);
    }

    /// The future of a release is dropped, or its time is over: `AskOnDrop` in `release.rs`. The reaper releases once more.
    pub(super) fn drops_release(&mut self, at: usize, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        let request = Request::Release(self.waiters[at].nonce);
        link.forsake(request);
        if mutant != Some(Mutant::DropTellsNobody) {
            self.machine.ask_after(instant(now), OneLock.name(), Duration::ZERO);
        }
        self.waiters[at].phase = Phase::Releasing { is_dropped: true };
        link.send(request, now);
    }

    /// A waiter is cancelled, or its deadline has passed.
    pub(super) fn gives_up(&mut self, at: usize, link: &mut Link) {
        self.leaves(at, Phase::GaveUp);
        link.forsake(Request::Acquire(self.waiters[at].nonce));
    }

    /// Takes back all that a waiter that gave up may have.
    pub(super) fn undoes(&mut self, at: usize, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::NoUndo) {
            return self.ends(at);
        }
        self.waiters[at].phase = Phase::Undoing;
        link.send(Request::Cancel(self.waiters[at].nonce), now);
    }

    /// The connection broke, and there is a new one: `client/links.rs` sends again what was not answered.
    pub(super) fn reconnects(&mut self, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        link.send(Request::Kill, now);
        if let Some(due) = self.heartbeat.take() {
            let error = Error::indeterminate(ErrorPhase::Wait, "the connection broke");
            // What will pass by itself is told to nobody.
            let _ = self.machine.failed(instant(now), &due, &error);
        }
        if mutant != Some(Mutant::LossTellsNobody) {
            self.machine.ask_all(instant(now));
        }
        for waiter in &mut self.waiters {
            // A grant that was on its way back may be there still, until it is undone.
            waiter.is_unwanted = false;
            match waiter.phase {
                Phase::Asking => link.send(Request::Acquire(waiter.nonce), now),
                Phase::Releasing { .. } => link.send(Request::Release(waiter.nonce), now),
                Phase::Undoing => link.send(Request::Cancel(waiter.nonce), now),
                _ => {}
            }
        }
    }

    /// The process dies.
    pub(super) fn dies(&mut self, link: &mut Link) {
        link.cut();
        link.pushes.clear();
        let gone = |waiter: &Waiter| Waiter { phase: Phase::Done, is_woken: false, is_unwanted: false, ..*waiter };
        let waiters = self.waiters.iter().map(gone).collect();
        *self = Self { is_dead: true, waiters, ..Self::new(self.number, &[], None) };
    }

    pub(super) fn hears(&mut self, (sent, reply): (Sent, Reply), link: &mut Link, now: u8, mutant: Option<Mutant>) {
        let at = match sent.request {
            Request::Acquire(nonce) | Request::Release(nonce) | Request::Cancel(nonce) => usize::from(nonce.waiter),
            _ => 0,
        };
        match reply {
            Reply::None => {}
            Reply::Granted(told) => self.holds(at, sent.at + told.lasts),
            Reply::Queued { last, known } => {
                let Waiter { nonce, ticket, .. } = self.waiters[at];
                self.waiters[at].phase = Phase::Waiting;
                let reply = enqueued(sent.at, ticket, known, last);
                let actions = self.machine.queued(instant(now), id(nonce), &OneLock, reply);
                // It looks for news itself, too.
                actions.wake.into_iter().chain([at]).for_each(|at| self.waiters[at].is_woken = true);
            }
            Reply::Heartbeat { known, queued, last, held } => {
                let Some(due) = self.heartbeat.take() else { return };
                let queued = due.nonces.iter().map(|nonce| queued.iter().any(|other| id(*other) == *nonce)).collect();
                let grants = held.and_then(granted).into_iter().collect();
                let (sent_at, pause, last_token) = (instant(sent.at), Pause::Regular, Some(u64::from(last)));
                let reply = HeartbeatReply { sent_at, known, pause, last_token, queued, holder: None, grants };
                let actions = self.machine.answered(instant(now), &due, &reply);
                actions.wake.into_iter().for_each(|at| self.waiters[at].is_woken = true);
                self.gives_back(link, now, mutant);
            }
            Reply::Ended(next) => {
                self.ends(at);
                let from = if mutant == Some(Mutant::GrantFromReply) { now } else { sent.at };
                if let Some(told) = next {
                    self.is_told(told, Some(from), link, now, mutant);
                }
            }
        }
    }

    /// Takes the news of a grant: of a push, or of a reply to a request that was sent in this second.
    pub(super) fn is_told(&mut self, told: Told, sent: Option<u8>, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        let Some(granted) = granted(told) else { return };
        match self.machine.granted(instant(now), granted, sent.map(instant)) {
            Action::Nothing => {}
            Action::Wake(at) => self.waiters[at].is_woken = true,
            Action::GiveBack => self.gives_back(link, now, mutant),
        }
    }

    /// Releases grants that nobody wants any more, as `wait/heartbeat/mod.rs` does.
    fn gives_back(&mut self, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        for (unwanted, _) in self.machine.take_unwanted(usize::MAX) {
            let waiter = self.waiters.iter_mut().filter(|waiter| id(waiter.nonce) == unwanted);
            for waiter in waiter {
                waiter.is_unwanted = true;
                if mutant != Some(Mutant::UnwantedKept) {
                    link.send(Request::GiveBack(waiter.nonce), now);
                }
            }
        }
    }

    /// The waiter looks for its news.
    pub(super) fn listens(&mut self, at: usize, link: &mut Link, now: u8, mutant: Option<Mutant>) {
        self.waiters[at].is_woken = false;
        let nonce = self.waiters[at].nonce;
        match self.machine.take_news(instant(now), id(nonce)) {
            Some(News::Granted(grant)) => {
                let lasts = grant.valid_for.as_secs() / SECOND.as_secs();
                self.holds(at, second(grant.sent_at) + u8::try_from(lasts).unwrap_or(u8::MAX));
            }
            Some(News::AskAgain) if mutant != Some(Mutant::NoAskAgain) => {
                self.waiters[at].phase = Phase::Asking;
                link.send(Request::Acquire(nonce), now);
            }
            _ => {}
        }
    }

    fn holds(&mut self, at: usize, until: u8) {
        self.leaves(at, Phase::Holding { until });
    }

    /// The waiter leaves the machine, for this.
    fn leaves(&mut self, at: usize, phase: Phase) {
        let waiter = &mut self.waiters[at];
        (waiter.phase, waiter.is_woken) = (phase, false);
        self.machine.leave(id(waiter.nonce), &OneLock, matches!(phase, Phase::Holding { .. }));
    }

    fn ends(&mut self, at: usize) {
        let waiter = &mut self.waiters[at];
        (waiter.phase, waiter.is_unwanted) = (Phase::Done, false);
        self.machine.forget(id(waiter.nonce));
    }
}

impl Waiter {
    /// Its place in the queue.
    pub(super) fn place(&self) -> (u8, Nonce) {
        (self.ticket, self.nonce)
    }

    /// Whether a push still tells its client something.
    pub(super) fn is_in_machine(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Asking | Phase::GaveUp | Phase::Undoing)
    }
}

fn enqueued(sent: u8, ticket: u8, known: bool, last: u8) -> Enqueued {
    let (ticket, last_token) = (u64::from(ticket), u64::from(last));
    Enqueued { sent_at: instant(sent), ticket, known, pause: Pause::Regular, last_token }
}

fn granted(Told { nonce, token, lasts }: Told) -> Option<Granted> {
    let token = FencingToken::new(u64::from(token))?;
    Some(Granted { nonce: id(nonce), token, valid_for: SECOND * u32::from(lasts) })
}

fn id(Nonce { client, waiter }: Nonce) -> GrantId {
    GrantId::from_bytes([client, waiter, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}
