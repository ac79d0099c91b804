//! A client: `Contention` and `SessionLease` of `lock-zk`, as they ship, and the connection between them and the servers.

use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_zk::machine::{Action, Contention, Event, ListedQueue, QueuePosition, Role, SessionLease, Way};

use super::Mutant;
use super::ensemble::{AttemptId, Listed, Reply, Request, Session};

/// A tick, by a client's clock.
const TICK: Duration = Duration::from_secs(1);

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) id: AttemptId,
    pub(super) session: Session,
    /// The time for which a session lives without a heartbeat.
    timeout: u8,
    lease: SessionLease,
    /// The time for which the session is believed in, in ticks that have begun.
    left: u8,
    /// The sending of the heartbeat whose answer is awaited.
    heartbeat: Option<BootInstant>,
    pub(super) phase: Phase,
    pub(super) contention: Contention<u8>,
    /// Its connection, which keeps its order.
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Something was asked for.
    Contending,
    /// The node before is watched.
    Watching,
    Holding,
    /// The node is being removed.
    Leaving,
    Done,
    Crashed,
}

/// Returns the instant at which so many ticks have passed.
fn at(now: u8) -> BootInstant {
    BootInstant::from_origin(TICK * u32::from(now))
}

/// The lease of a session that was asked for now. The servers are one: whatever is answered, the leader has heard of it.
fn lease(now: u8, timeout: u8) -> SessionLease {
    SessionLease::new(at(now), TICK * u32::from(timeout), Duration::ZERO)
}

impl Client {
    pub(super) fn new(client: u8, role: Role, timeout: u8) -> Self {
        Self {
            id: AttemptId { client, attempt: 0, role },
            session: Session { client, number: 0 },
            timeout,
            lease: lease(0, timeout),
            left: timeout,
            heartbeat: None,
            phase: Phase::Idle,
            contention: Contention::new(Way::Append),
            requests: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Looks at the clock.
    pub(super) fn look(&mut self, now: u8) {
        let left = if self.lease.is_over(at(now)) { Duration::ZERO } else { self.lease.end().since(at(now)) };
        // Whoever is done believes in nothing.
        let ticks = if self.is_over() { 0 } else { left.as_nanos().div_ceil(TICK.as_nanos()) };
        self.left = u8::try_from(ticks).unwrap_or(u8::MAX);
    }

    /// Whether it believes to hold the lock.
    pub(super) fn believes(&self, mutant: Option<Mutant>) -> bool {
        self.phase == Phase::Holding && (self.left > 0 || mutant == Some(Mutant::EndlessBelief))
    }

    pub(super) fn left(&self) -> u8 {
        self.left
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Crashed)
    }

    pub(super) fn may_leave(&self) -> bool {
        matches!(self.phase, Phase::Contending | Phase::Watching | Phase::Holding)
    }

    /// As soon as there is something to gain, and something to lose.
    pub(super) fn may_send_heartbeat(&self) -> bool {
        self.may_leave() && (1..self.timeout).contains(&self.left) && self.heartbeat.is_none()
    }

    /// Whether this answer still tells it something.
    pub(super) fn awaits(&self, reply: &Reply) -> bool {
        match self.phase {
            Phase::Leaving => matches!(reply, Reply::Removed | Reply::Expired),
            Phase::Idle | Phase::Done | Phase::Crashed => false,
            _ => true,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.requests.is_empty() || !self.replies.is_empty() || self.phase == Phase::Watching
    }

    /// Does what the attempt wants next.
    fn step(&mut self, event: Event<u8, Listed>) {
        let action = self.contention.step(event);
        self.phase = Phase::Contending;
        match action {
            Action::Ask(lock_zk::machine::Request::Append) => {
                self.requests.extend([Request::Create(self.id), Request::List]);
            }
            Action::Ask(lock_zk::machine::Request::Find) => self.requests.push(Request::Find(self.id)),
            Action::Ask(lock_zk::machine::Request::List) => self.requests.push(Request::List),
            Action::Stand(QueuePosition::First(_)) => self.phase = Phase::Holding,
            Action::Stand(QueuePosition::Behind(node)) => {
                self.phase = Phase::Watching;
                self.requests.push(Request::Watch(node.zxid));
            }
            Action::Stand(QueuePosition::Missing) => self.step(Event::Rejoin),
            // There is a directory, and a queue.
            Action::Ask(lock_zk::machine::Request::Claim | lock_zk::machine::Request::MakeDirectory) => {}
        }
    }

    pub(super) fn start(&mut self) {
        self.step(Event::Begin);
    }

    pub(super) fn send_heartbeat(&mut self, now: u8) {
        self.heartbeat = Some(at(now));
        self.requests.push(Request::Heartbeat);
    }

    /// Gives up, or releases the lock.
    pub(super) fn leave(&mut self, attempts: u8, mutant: Option<Mutant>) {
        let forgets = match mutant {
            Some(Mutant::NoUndo) => self.phase != Phase::Holding,
            Some(Mutant::UndoByMemory) => self.contention.node().is_none(),
            _ => false,
        };
        if forgets {
            return self.end(attempts);
        }
        self.phase = Phase::Leaving;
        self.requests.push(Request::Remove(self.id));
        // Answers that are still under way are not listened to.
        self.replies.clear();
        self.heartbeat = None;
        self.contention = Contention::new(Way::Append);
    }

    fn end(&mut self, attempts: u8) {
        self.id.attempt += 1;
        self.contention = Contention::new(Way::Append);
        self.heartbeat = None;
        self.phase = Phase::Idle;
        if self.id.attempt == attempts {
            self.phase = Phase::Done;
            (self.lease, self.left) = (lease(0, self.timeout), 0);
        }
    }

    /// The connection broke: the session goes on with another server, which refuses what the former one still has.
    pub(super) fn reconnected(&mut self, mutant: Option<Mutant>) {
        self.requests.clear();
        self.replies.clear();
        self.heartbeat = None;
        match self.phase {
            Phase::Contending if mutant == Some(Mutant::CreatedTwice) && self.contention.node().is_none() => {
                self.start();
            }
            Phase::Contending => self.step(Event::Unanswered),
            Phase::Watching => self.step(Event::Look),
            Phase::Leaving => self.requests.push(Request::Remove(self.id)),
            _ => {}
        }
    }

    /// The session is over, and another one is opened: what was held is lost, who waits begins anew.
    pub(super) fn reopened(&mut self, now: u8, mutant: Option<Mutant>) {
        self.session.number += 1;
        (self.lease, self.left) = (lease(now, self.timeout), self.timeout);
        self.heartbeat = None;
        self.requests.clear();
        self.replies.clear();
        match self.phase {
            Phase::Contending | Phase::Watching if mutant == Some(Mutant::FormerSession) => {
                self.contention = Contention::new(Way::Append);
                self.step(Event::Unanswered);
            }
            Phase::Contending | Phase::Watching => self.start(),
            Phase::Holding | Phase::Leaving => {
                self.contention = Contention::new(Way::Append);
                self.phase = Phase::Leaving;
                self.requests.push(Request::Remove(self.id));
            }
            Phase::Idle | Phase::Done | Phase::Crashed => {}
        }
    }

    pub(super) fn crash(&mut self) {
        *self = Self {
            session: self.session,
            id: self.id,
            phase: Phase::Crashed,
            left: 0,
            ..Self::new(0, self.id.role, self.timeout)
        };
    }

    pub(super) fn hear(&mut self, reply: Reply, now: u8, attempts: u8, mutant: Option<Mutant>) {
        match (reply, self.phase) {
            (Reply::Heartbeat, _) => {
                if let Some(sent_at) = self.heartbeat.take() {
                    let late = mutant == Some(Mutant::DeadlineFromReply);
                    self.lease.answered(if late { at(now) } else { sent_at }, at(now));
                    self.look(now);
                }
            }
            (Reply::Expired, _) => {
                self.lease.give_up();
                self.left = 0;
            }
            (Reply::Created { zxid }, Phase::Contending) => {
                // It asks for the listing, which is on its way.
                let _ = self.contention.step::<Listed>(Event::Created(zxid, at(now)));
            }
            (Reply::Found(node), Phase::Contending) => self.step(Event::Found(node.map(|node| node.zxid))),
            (Reply::Listed(queue), Phase::Contending) => {
                self.step(Event::Listed(Arc::new(ListedQueue::new(queue)), at(now)))
            }
            (Reply::Gone, Phase::Watching) if mutant == Some(Mutant::NewsGrant) => {
                self.step(Event::HandedOver(at(now)));
            }
            (Reply::NoNode, Phase::Watching) if mutant == Some(Mutant::WatchOnNothing) => {}
            (Reply::Gone | Reply::NoNode, Phase::Watching) => self.step(Event::Look),
            (Reply::Removed, Phase::Leaving) => self.end(attempts),
            // Answers to what is no longer asked.
            _ => {}
        }
    }
}
