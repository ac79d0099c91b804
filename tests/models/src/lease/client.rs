//! A client, with one attempt after the other: `acquire.rs` and `release.rs` of `lock-redis`, the lease of `lock-core`, and the
//! machine of `lock-redis` as it ships.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::{Error, FencingToken, GrantId, Phase as ErrorPhase};
use lock_redis::machine::{Action, DueHeartbeat, Enqueued, Granted, HeartbeatReply, News, Pause, Waiters};

use super::wire::{Link, Nonce, Push, Reply, Request};
use super::{CLAIM, Mutant, NOW, TICK, TTL};
use crate::one_lock::OneLock;

/// The state of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    pub(super) nonce: Nonce,
    pub(super) phase: Phase,
    waiters: Waiters<OneLock, ()>,
    /// The age of each request whose answer is awaited.
    asking: Option<u8>,
    heartbeat: Option<(DueHeartbeat<OneLock>, u8)>,
    renewing: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Idle,
    /// Not granted.
    Waiting,
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

impl Hash for Client {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let heartbeat = self.heartbeat.as_ref().map(|(_, age)| age);
        (self.nonce, &self.phase, &self.waiters, self.asking, heartbeat, self.renewing).hash(state);
    }
}

impl Client {
    pub(super) fn new(client: u8) -> Self {
        let nonce = Nonce { client, attempt: 0 };
        Self { nonce, phase: Phase::Idle, waiters: Waiters::default(), asking: None, heartbeat: None, renewing: None }
    }

    pub(super) fn tick(&mut self) {
        let older = |age: &mut u8| *age = (*age + 1).min(TTL);
        let heartbeat = self.heartbeat.as_mut().map(|(_, age)| age);
        [self.asking.as_mut(), heartbeat, self.renewing.as_mut()].into_iter().flatten().for_each(older);
        let due = |at: BootInstant| if at == BootInstant::FAR_FUTURE { at } else { at.minus(TICK) };
        self.waiters.map_instants(|at| at.minus(TICK), due);
        if let Phase::Holding { left, lapsed, .. } = &mut self.phase {
            *left = left.saturating_sub(1);
            *lapsed |= *left == 0;
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
            Phase::Waiting | Phase::Holding { .. } => !matches!(reply, Reply::Killed | Reply::GivenBack),
            Phase::Ending(_) => reply == Reply::Ended,
            Phase::Idle | Phase::Done | Phase::Crashed => false,
        }
    }

    /// As soon as the machine says so.
    pub(super) fn may_send_heartbeat(&self) -> bool {
        self.waiters.next(NOW) <= NOW && self.heartbeat.is_none()
    }

    /// Whether a request of its own for the lock is under way.
    pub(super) fn asks(&self) -> bool {
        self.asking.is_some()
    }

    /// As soon as there is something to gain.
    pub(super) fn may_renew(&self) -> bool {
        self.believes().is_some_and(|left| left < TTL) && self.renewing.is_none()
    }

    pub(super) fn start(&mut self, link: &mut Link) {
        self.phase = Phase::Waiting;
        self.waiters.enter(id(self.nonce), ());
        self.ask(link);
    }

    /// The lock is granted, for so long from the request that was sent so long ago.
    fn hold(&mut self, lasts: u8, ago: u8, token: u8) {
        let left = lasts.saturating_sub(ago);
        self.waiters.leave(id(self.nonce), &OneLock, true);
        self.phase = Phase::Holding { left, token, lapsed: left == 0 };
    }

    fn ask(&mut self, link: &mut Link) {
        self.asking = Some(0);
        link.requests.push(Request::Acquire(self.nonce));
    }

    pub(super) fn send_heartbeat(&mut self, link: &mut Link) {
        self.heartbeat = self.waiters.due(NOW, 1).0.pop().map(|due| (due, 0));
        link.requests.push(Request::Heartbeat(self.nonce));
    }

    pub(super) fn renew(&mut self, link: &mut Link) {
        self.renewing = Some(0);
        link.requests.push(Request::Renew(self.nonce));
    }

    /// Gives up waiting, or releases the lock, however it has come to that.
    pub(super) fn leave(&mut self, link: &mut Link, attempts: u8, mutant: Option<Mutant>) {
        let last = match self.phase {
            Phase::Holding { .. } => Request::Release(self.nonce),
            _ => {
                self.waiters.leave(id(self.nonce), &OneLock, false);
                if mutant == Some(Mutant::NoUndo) {
                    return self.end(link, attempts);
                }
                Request::Cancel(self.nonce)
            }
        };
        link.requests.push(last);
        // Answers that are still under way are not listened to, nor are pushes to who was granted the lock.
        link.replies.clear();
        if last == Request::Release(self.nonce) {
            link.pushes.clear();
        }
        self.phase = Phase::Ending(last);
        (self.asking, self.heartbeat, self.renewing) = (None, None, None);
    }

    /// The connection broke, and there is a new one.
    pub(super) fn reconnected(&mut self, link: &mut Link, mutant: Option<Mutant>) {
        self.renewing = None;
        if let Some((due, _)) = self.heartbeat.take() {
            let error = Error::indeterminate(ErrorPhase::Wait, "the connection broke");
            // What will pass by itself is told to nobody.
            let _ = self.waiters.failed(NOW, &due, &error);
        }
        self.waiters.ask_all(NOW);
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
            Reply::Killed | Reply::GivenBack => {}
            Reply::Granted { token, lasts } => {
                let ago = self.asking.take().unwrap_or(TTL);
                if self.phase == Phase::Waiting {
                    let ago = if is(Mutant::DeadlineFromReply) { 0 } else { ago };
                    self.hold(lasts, ago, token);
                }
            }
            Reply::Queued { last, known } => {
                let age = self.asking.take().unwrap_or(TTL);
                let sent_at = if is(Mutant::QuestionFromReply) { NOW } else { ago(age) };
                let last_token = if is(Mutant::PushWithoutFloor) { 0 } else { u64::from(last) };
                let reply = Enqueued { sent_at, ticket: 1, known, pause: Pause::Regular, last_token };
                if self.phase == Phase::Waiting {
                    // It is the only waiter of its client.
                    let _ = self.waiters.queued(NOW, id(self.nonce), &OneLock, reply);
                    self.listen(link, mutant);
                }
            }
            Reply::Heartbeat { known, queued, last, grant } => {
                let Some((due, age)) = self.heartbeat.take() else { return };
                let sent_at = if is(Mutant::QuestionFromReply) { NOW } else { ago(age) };
                let last = if is(Mutant::PushWithoutFloor) { 0 } else { u64::from(last) };
                let grants = grant.into_iter().filter_map(|(token, left)| self.grant(token, left)).collect();
                let (pause, last_token, queued) = (Pause::Regular, Some(last), vec![queued]);
                let reply = HeartbeatReply { sent_at, known, pause, last_token, queued, holder: None, grants };
                if !self.waiters.answered(NOW, &due, &reply).wake.is_empty() {
                    self.listen(link, mutant);
                }
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

    pub(super) fn hear_push(&mut self, push: Push, link: &mut Link, mutant: Option<Mutant>) {
        let sent_at = (mutant == Some(Mutant::PushFromArrival)).then_some(NOW);
        let claim = if mutant == Some(Mutant::PushWithoutBound) { 2 * TTL } else { CLAIM };
        let Some(granted) = self.grant(push.token, claim) else { return };
        if push.nonce != self.nonce {
            return;
        }
        match self.waiters.granted(NOW, granted, sent_at) {
            Action::Nothing => {}
            Action::Wake(()) => self.listen(link, mutant),
            Action::GiveBack => {
                let unwanted = self.waiters.take_unwanted(usize::MAX);
                link.requests.extend(unwanted.iter().map(|_| Request::GiveBack(self.nonce)));
            }
        }
    }

    fn grant(&self, token: u8, left: u8) -> Option<Granted> {
        let token = FencingToken::new(u64::from(token))?;
        Some(Granted { nonce: id(self.nonce), token, valid_for: TICK * u32::from(left) })
    }

    /// The waiter takes its news, unless it waits for an answer.
    fn listen(&mut self, link: &mut Link, mutant: Option<Mutant>) {
        if self.asking.is_some() {
            return;
        }
        match self.waiters.take_news(NOW, id(self.nonce)) {
            Some(News::Granted(grant)) => {
                let token = grant.token.map_or(0, |token| token.as_u64());
                // Neither is more than a few ticks, and tokens are few.
                let token = u8::try_from(token).unwrap_or(u8::MAX);
                self.hold(ticks(grant.valid_for), ticks(NOW.since(grant.sent_at)), token);
            }
            Some(News::AskAgain) if mutant != Some(Mutant::PlaceNotRetaken) => self.ask(link),
            _ => {}
        }
    }

    /// Counts instants in ticks from the present, and not beyond what matters.
    pub(super) fn round(&mut self) {
        let oldest = ago(TTL);
        let due = |at| match at {
            BootInstant::FAR_FUTURE => at,
            _ if at > NOW => NOW.plus(TICK),
            _ => NOW,
        };
        self.waiters.map_instants(|at| at.max(oldest), due);
    }

    /// Shows every token that it knows.
    pub(super) fn each_token(&mut self, mut see: impl FnMut(&mut u8)) {
        self.waiters.map_tokens(|token| {
            let mut token = u8::try_from(token).unwrap_or(u8::MAX);
            see(&mut token);
            token.into()
        });
        if let Phase::Holding { token, .. } = &mut self.phase {
            see(token);
        }
    }

    fn end(&mut self, link: &mut Link, attempts: u8) {
        self.waiters.forget(id(self.nonce));
        let nonce = Nonce { attempt: self.nonce.attempt + 1, ..self.nonce };
        let phase = if nonce.attempt < attempts { Phase::Idle } else { Phase::Done };
        *self = Self { nonce, phase, ..Self::new(nonce.client) };
        link.pushes.clear();
    }
}

/// The instant so many ticks ago.
fn ago(age: u8) -> BootInstant {
    NOW.minus(TICK * u32::from(age))
}

fn ticks(time: Duration) -> u8 {
    u8::try_from(time.as_secs() / TICK.as_secs()).unwrap_or(u8::MAX)
}

fn id(Nonce { client, attempt }: Nonce) -> GrantId {
    GrantId::from_bytes([client, attempt, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
}
