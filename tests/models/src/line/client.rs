//! A client: `queue.rs` and `session/` of `lock-zk`.

use super::Mutant;
use super::ensemble::{Node, Reply, Request, Seat, Session};

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) seat: Seat,
    pub(super) session: Session,
    /// The time for which a session lives without a heartbeat.
    timeout: u8,
    /// The time for which the session is believed in.
    lease: u8,
    /// The age of the heartbeat whose answer is awaited.
    beat: Option<u8>,
    pub(super) phase: Phase,
    /// The node of its seat, once it is known.
    pub(super) node: Option<u8>,
    /// Its connection, which keeps its order.
    pub(super) requests: Vec<Request>,
    pub(super) replies: Vec<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// A node was asked for, or is looked for.
    Sitting,
    /// The line was asked for.
    Looking,
    /// The node before is watched.
    Watching,
    Holding,
    /// The node is being removed.
    Leaving,
    Done,
    Crashed,
}

impl Client {
    pub(super) fn new(client: u8, timeout: u8) -> Self {
        Self {
            seat: Seat { client, attempt: 0 },
            session: Session { client, number: 0 },
            timeout,
            lease: timeout,
            beat: None,
            phase: Phase::Idle,
            node: None,
            requests: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn tick(&mut self) {
        self.lease = self.lease.saturating_sub(1);
        self.beat = self.beat.map(|age| (age + 1).min(self.timeout));
    }

    /// Whether it believes to hold the lock.
    pub(super) fn believes(&self, mutant: Option<Mutant>) -> bool {
        self.phase == Phase::Holding && (self.lease > 0 || mutant == Some(Mutant::EndlessBelief))
    }

    pub(super) fn lease(&self) -> u8 {
        self.lease
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Crashed)
    }

    pub(super) fn may_leave(&self) -> bool {
        matches!(self.phase, Phase::Sitting | Phase::Looking | Phase::Watching | Phase::Holding)
    }

    /// As soon as there is something to gain, and something to lose.
    pub(super) fn may_beat(&self) -> bool {
        self.may_leave() && (1..self.timeout).contains(&self.lease) && self.beat.is_none()
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

    pub(super) fn start(&mut self) {
        self.phase = Phase::Sitting;
        self.requests.extend([Request::Create(self.seat), Request::List]);
    }

    fn look(&mut self) {
        self.phase = Phase::Looking;
        self.requests.push(Request::List);
    }

    pub(super) fn beat(&mut self) {
        self.beat = Some(0);
        self.requests.push(Request::Beat);
    }

    /// Gives up, or gives the lock back.
    pub(super) fn leave(&mut self, attempts: u8, mutant: Option<Mutant>) {
        let forgets = match mutant {
            Some(Mutant::NoUndo) => self.phase != Phase::Holding,
            Some(Mutant::UndoByMemory) => self.node.is_none(),
            _ => false,
        };
        if forgets {
            return self.end(attempts);
        }
        self.phase = Phase::Leaving;
        self.requests.push(Request::Remove(self.seat));
        // Answers that are still under way are not listened to.
        self.replies.clear();
        self.beat = None;
        self.node = None;
    }

    fn end(&mut self, attempts: u8) {
        self.seat.attempt += 1;
        self.node = None;
        self.beat = None;
        self.phase = if self.seat.attempt < attempts { Phase::Idle } else { Phase::Done };
    }

    /// The connection broke: the session goes on with another server, which refuses what the former one still has.
    pub(super) fn reconnected(&mut self, mutant: Option<Mutant>) {
        self.requests.clear();
        self.replies.clear();
        self.beat = None;
        match self.phase {
            Phase::Sitting if mutant == Some(Mutant::CreatedTwice) => self.start(),
            Phase::Sitting => self.requests.push(Request::Find(self.seat)),
            Phase::Looking | Phase::Watching => self.look(),
            Phase::Leaving => self.requests.push(Request::Remove(self.seat)),
            _ => {}
        }
    }

    /// The session is over, and another one is opened: what was held is lost, who waits begins anew.
    pub(super) fn reopened(&mut self, mutant: Option<Mutant>) {
        self.session.number += 1;
        self.lease = self.timeout;
        self.beat = None;
        self.node = None;
        self.requests.clear();
        self.replies.clear();
        match self.phase {
            Phase::Sitting | Phase::Looking | Phase::Watching if mutant == Some(Mutant::FormerSession) => {
                self.phase = Phase::Sitting;
                self.requests.push(Request::Find(self.seat));
            }
            Phase::Sitting | Phase::Looking | Phase::Watching => self.start(),
            Phase::Holding | Phase::Leaving => {
                self.phase = Phase::Leaving;
                self.requests.push(Request::Remove(self.seat));
            }
            Phase::Idle | Phase::Done | Phase::Crashed => {}
        }
    }

    pub(super) fn crash(&mut self) {
        *self = Self {
            session: self.session,
            seat: self.seat,
            phase: Phase::Crashed,
            lease: 0,
            ..Self::new(0, self.timeout)
        };
    }

    pub(super) fn hear(&mut self, reply: Reply, attempts: u8, mutant: Option<Mutant>) {
        match (reply, self.phase) {
            (Reply::Beaten, _) => {
                let age = self.beat.take().unwrap_or(self.timeout);
                let age = if mutant == Some(Mutant::DeadlineFromReply) { 0 } else { age };
                // A passed end is final.
                if self.lease > 0 {
                    self.lease = self.lease.max(self.timeout - age);
                }
            }
            (Reply::Expired, _) => self.lease = 0,
            (Reply::Created { zxid }, Phase::Sitting) => {
                self.node = Some(zxid);
                self.phase = Phase::Looking;
            }
            (Reply::Found(Some(Node { zxid, .. })), Phase::Sitting) => {
                self.node = Some(zxid);
                self.look();
            }
            (Reply::Found(None), Phase::Sitting) => self.start(),
            (Reply::Listed(line), Phase::Looking) => self.looked(&line),
            (Reply::Gone, Phase::Watching) if mutant == Some(Mutant::NewsGrant) => self.phase = Phase::Holding,
            (Reply::NoNode, Phase::Watching) if mutant == Some(Mutant::WatchOnNothing) => {}
            (Reply::Gone | Reply::NoNode, Phase::Watching) => self.look(),
            (Reply::Removed, Phase::Leaving) => self.end(attempts),
            // Answers to what is no longer asked.
            _ => {}
        }
    }

    fn looked(&mut self, line: &[u8]) {
        match line.iter().position(|zxid| Some(*zxid) == self.node) {
            Some(0) => self.phase = Phase::Holding,
            Some(index) => {
                self.phase = Phase::Watching;
                self.requests.push(Request::Watch(line[index - 1]));
            }
            None => self.start(),
        }
    }
}
