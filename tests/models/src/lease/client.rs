//! A client, with one attempt after the other: `acquire.rs`, `wait/` and `release.rs` of `lock-redis`, and the lease of
//! `lock-core`.

use super::wire::{Link, Nonce, Push, Reply, Request};
use super::{CLAIM, Mutant, TTL};

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) nonce: Nonce,
    pub(super) phase: Phase,
    /// The age of each request whose answer is awaited.
    asking: Option<u8>,
    poking: Option<u8>,
    renewing: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Not granted; with the last answer that said so.
    Waiting(Option<Heard>),
    /// Granted, and believed for so long.
    Holding {
        left: u8,
        token: u8,
        /// Whether the deadline has passed once.
        lapsed: bool,
    },
    /// This request is repeated until it is answered.
    Ending(Request),
    Done,
    /// The process is gone.
    Crashed,
}

/// The last answer "still waiting".
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Heard {
    /// The age of its request.
    ago: u8,
    /// Tokens up to this one are of grants before.
    pub(super) floor: u8,
}

impl Client {
    pub(super) fn new(client: u8) -> Self {
        let nonce = Nonce { client, attempt: 0 };
        Self { nonce, phase: Phase::Idle, asking: None, poking: None, renewing: None }
    }

    pub(super) fn tick(&mut self) {
        let older = |age: &mut u8| *age = (*age + 1).min(TTL);
        [&mut self.asking, &mut self.poking, &mut self.renewing].into_iter().flatten().for_each(older);
        match &mut self.phase {
            Phase::Waiting(Some(heard)) => older(&mut heard.ago),
            Phase::Holding { left, lapsed, .. } => {
                *left = left.saturating_sub(1);
                *lapsed |= *left == 0;
            }
            _ => {}
        }
    }

    /// Whether it believes to hold the lock, by its own clock.
    pub(super) fn believes(&self) -> Option<u8> {
        match self.phase {
            Phase::Holding { left, .. } if left > 0 => Some(left),
            _ => None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Crashed)
    }

    /// Whether this answer still tells it something.
    pub(super) fn awaits(&self, reply: Reply) -> bool {
        match self.phase {
            Phase::Waiting(_) | Phase::Holding { .. } => reply != Reply::Killed,
            Phase::Ending(_) => reply == Reply::Ended,
            Phase::Idle | Phase::Done | Phase::Crashed => false,
        }
    }

    /// As soon as there can be news.
    pub(super) fn may_poke(&self) -> bool {
        let heard = matches!(&self.phase, Phase::Waiting(Some(heard)) if heard.ago > 0);
        heard && self.asking.is_none() && self.poking.is_none()
    }

    /// As soon as there is something to gain.
    pub(super) fn may_renew(&self) -> bool {
        self.believes().is_some_and(|left| left < TTL) && self.renewing.is_none()
    }

    pub(super) fn may_hear_push(&self) -> bool {
        self.asking.is_none()
    }

    pub(super) fn start(&mut self, link: &mut Link) {
        self.phase = Phase::Waiting(None);
        self.ask(link);
    }

    /// The lock is granted, for so long from the request that was sent so long ago.
    fn hold(&mut self, lasts: u8, ago: u8, token: u8) {
        let left = lasts.saturating_sub(ago);
        self.phase = Phase::Holding { left, token, lapsed: left == 0 };
    }

    fn ask(&mut self, link: &mut Link) {
        self.asking = Some(0);
        link.requests.push(Request::Acquire(self.nonce));
    }

    pub(super) fn poke(&mut self, link: &mut Link) {
        self.poking = Some(0);
        link.requests.push(Request::Poke(self.nonce));
    }

    pub(super) fn renew(&mut self, link: &mut Link) {
        self.renewing = Some(0);
        link.requests.push(Request::Renew(self.nonce));
    }

    /// Gives up waiting, or gives the lock back, however it has come to that.
    pub(super) fn leave(&mut self, link: &mut Link, attempts: u8, mutant: Option<Mutant>) {
        let last = match self.phase {
            Phase::Holding { .. } => Request::Release(self.nonce),
            _ if mutant == Some(Mutant::NoUndo) => return self.end(link, attempts),
            _ => Request::Cancel(self.nonce),
        };
        link.requests.push(last);
        // Answers and pushes that are still under way are not listened to.
        link.replies.clear();
        link.pushes.clear();
        *self = Self { nonce: self.nonce, phase: Phase::Ending(last), ..Self::new(self.nonce.client) };
    }

    /// The connection broke, and there is a new one.
    pub(super) fn reconnected(&mut self, link: &mut Link, mutant: Option<Mutant>) {
        (self.poking, self.renewing) = (None, None);
        if mutant != Some(Mutant::NoKill) {
            link.requests.push(Request::Kill);
        }
        if let Phase::Ending(last) = self.phase {
            link.requests.push(last);
        } else if self.asking.is_some() {
            self.ask(link);
        }
    }

    pub(super) fn crash(&mut self, link: &mut Link) {
        link.cut();
        link.pushes.clear();
        *self = Self { phase: Phase::Crashed, ..Self::new(self.nonce.client) };
    }

    pub(super) fn hear(&mut self, reply: Reply, link: &mut Link, attempts: u8, mutant: Option<Mutant>) {
        let is = |other| mutant == Some(other);
        match reply {
            Reply::Killed => {}
            Reply::Granted { token, lasts } => {
                let ago = self.asking.take().unwrap_or(TTL);
                if matches!(self.phase, Phase::Waiting(_)) {
                    let ago = if is(Mutant::DeadlineFromReply) { 0 } else { ago };
                    self.hold(lasts, ago, token);
                }
            }
            Reply::Queued { last } => {
                let ago = self.asking.take().unwrap_or(TTL);
                if let Phase::Waiting(heard) = &mut self.phase {
                    *heard = Some(Heard { ago, floor: last });
                }
            }
            Reply::Poked { queued, grant } => {
                let ago = self.poking.take().unwrap_or(TTL);
                self.poked(ago, queued, grant, link, mutant);
            }
            Reply::Renewed(done) => {
                let ago = self.renewing.take().unwrap_or(TTL);
                if let Phase::Holding { left, .. } = &mut self.phase {
                    // A passed deadline is final.
                    if *left > 0 || is(Mutant::RevivedByRenewal) {
                        *left = if done { (*left).max(TTL - ago) } else { 0 };
                    }
                }
            }
            Reply::Ended => self.end(link, attempts),
        }
    }

    fn poked(&mut self, ago: u8, queued: bool, grant: Option<(u8, u8)>, link: &mut Link, mutant: Option<Mutant>) {
        let Phase::Waiting(Some(heard)) = &mut self.phase else { return };
        if self.asking.is_some() {
            return;
        }
        match grant {
            Some((token, lasts)) if token > heard.floor && lasts > ago => {
                self.hold(lasts, ago, token);
            }
            _ if queued => heard.ago = ago,
            _ if mutant == Some(Mutant::PlaceNotRetaken) => {}
            _ => self.ask(link),
        }
    }

    pub(super) fn hear_push(&mut self, push: Push, link: &mut Link, mutant: Option<Mutant>) {
        let Phase::Waiting(Some(heard)) = &self.phase else { return };
        if push.nonce != self.nonce || (push.token <= heard.floor && mutant != Some(Mutant::PushWithoutFloor)) {
            return;
        }
        let ago = if mutant == Some(Mutant::PushFromArrival) { 0 } else { heard.ago };
        if ago < CLAIM {
            self.hold(CLAIM, ago, push.token);
        } else {
            self.ask(link);
        }
    }

    fn end(&mut self, link: &mut Link, attempts: u8) {
        let nonce = Nonce { attempt: self.nonce.attempt + 1, ..self.nonce };
        let phase = if nonce.attempt < attempts { Phase::Idle } else { Phase::Done };
        *self = Self { nonce, phase, ..Self::new(nonce.client) };
        link.pushes.clear();
    }
}
