//! The waiters of one client as a machine without I/O: events in, with the instant at which they happen, and out of it what is
//! to be done.
//!
//! The queue itself is at the server. Here each waiter has a place under its nonce, so that a push, the reply to a
//! release of the same process, or the reply to a heartbeat can reach it. Knowledge from here may save a wake-up; it never
//! makes a grant.
//!
//! # When a pushed grant counts
//! A push may be old. It is believed from the instant at which the waiter's last request that was answered "still
//! waiting" was **sent** (the grant is younger than that answer), and for as long as it says: a claim time. Past that it is no grant
//! until the server has confirmed it, which one more acquisition under the same nonce asks for.
//!
//! Public for `tests/models`, which explores it as it ships. It is outside of semver.

mod agenda;
mod heartbeat;
mod known_holder;
mod lock_queue;
mod normal;
mod pause;
mod waiter;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use lock_core::clock::BootInstant;
use lock_core::driver::BusyLocks;
use lock_core::{Error, ErrorKind, GrantId};

use self::agenda::Agenda;
pub use self::heartbeat::{DueHeartbeat, Enqueued, HeartbeatReply};
pub use self::known_holder::KnownHolder;
#[cfg(test)]
pub(crate) use self::lock_queue::{ASKED, SHORTEST_PERIOD, SOON};
use self::lock_queue::{LockQueue, Lost};
pub use self::pause::Pause;
pub use self::waiter::News;
use self::waiter::Waiter;
use crate::registry::Registry;
pub use crate::store::reply::Granted;

/// A lock, as its waiters know it.
pub trait Lock: Clone + Debug {
    /// The name by which it is told from others.
    fn name(&self) -> &str;

    /// Whether foreign clients use its key too.
    fn is_shared(&self) -> bool;
}

/// The waiters of one client, and when each lock is to be asked for.
///
/// `L` is a lock, `W` is whatever wakes a waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiters<L, W> {
    registry: Registry<Waiter<W>, L>,
    queues: HashMap<String, LockQueue<L>>,
    agenda: Agenda<L>,
    /// The number of heartbeats so far.
    heartbeats: u64,
    /// Locks at which more waiters find room than the last run of a script let in.
    unfinished: HashMap<String, L>,
    busy: BusyLocks,
}

/// The things to do after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Actions<W> {
    /// The waiters for whom there are news.
    pub wake: Vec<W>,
    /// The heartbeat task has something to do earlier than it knows.
    pub ask: bool,
}

/// The thing to do after news of one grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Action<W> {
    /// Nothing.
    Nothing,
    /// A waiter is to be woken: there are news for it.
    Wake(W),
    /// The heartbeat task has a grant to release.
    GiveBack,
}

impl<L, W> Default for Waiters<L, W> {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            queues: HashMap::new(),
            agenda: Agenda::default(),
            heartbeats: 0,
            unfinished: HashMap::new(),
            busy: BusyLocks::default(),
        }
    }
}

impl<L: Lock, W: Clone> Waiters<L, W> {
    /// A waiter begins to wait, before anything is sent: a push may come before the reply.
    pub fn enter(&mut self, nonce: GrantId, wake: W) {
        self.registry.register(nonce, Waiter::new(wake));
    }

    /// The server has put this waiter into the queue.
    pub fn queued(&mut self, now: BootInstant, nonce: GrantId, lock: &L, reply: Enqueued) -> Actions<W> {
        let Enqueued { sent_at, ticket, known, pause, last_token } = reply;
        let mut actions = Actions { wake: Vec::new(), ask: pause == Pause::None };
        if actions.ask {
            self.unfinished.insert(lock.name().to_owned(), lock.clone());
        }
        let Self { registry, queues, agenda, .. } = self;
        let Some(waiter) = registry.waiter_mut(nonce) else { return actions };
        let earlier = waiter.ticket();
        waiter.queued(sent_at, ticket, last_token);
        let queue = queues.entry(lock.name().to_owned()).or_insert_with(|| LockQueue::new(lock, now, agenda));
        queue.heard(now);
        if let Some(earlier) = earlier {
            queue.waiting.remove(&(earlier, nonce));
        }
        queue.waiting.insert((ticket, nonce));
        if !known {
            // The server had forgotten this client, and with it whoever else had asked before.
            let others = queue.waiting.iter().map(|(_, other)| *other).filter(|other| *other != nonce);
            actions.wake.extend(others.filter_map(|other| registry.waiter_mut(other)?.forgotten_at(sent_at, false)));
        }
        actions.ask |= queue.ask_within(agenda, now, pause);
        actions
    }

    /// A waiter waits no longer, because it has the lock or because it gave up.
    pub fn leave(&mut self, nonce: GrantId, lock: &L, granted: bool) {
        let waiter = self.registry.deregister(nonce, (!granted).then(|| lock.clone()));
        let Some(ticket) = waiter.and_then(|waiter| waiter.ticket()) else { return };
        let Some(queue) = self.queues.get_mut(lock.name()) else { return };
        queue.waiting.remove(&(ticket, nonce));
        if queue.waiting.is_empty() {
            self.agenda.remove(queue.entry);
            self.queues.remove(lock.name());
        }
    }

    /// Nothing of an attempt that gave up can be granted any more, or nobody cares any more.
    pub fn forget(&mut self, nonce: GrantId) {
        self.registry.forget(nonce);
    }

    /// A push, or a reply that names grants of this client: one has the lock, from a request that was sent at `sent_at` or, for a push,
    /// from the waiter's own last question.
    pub fn granted(&mut self, now: BootInstant, granted: Granted, sent_at: Option<BootInstant>) -> Action<W> {
        if let Some(waiter) = self.registry.waiter_mut(granted.nonce) {
            return waiter.granted(now, granted, sent_at).map_or(Action::Nothing, Action::Wake);
        }
        if self.registry.note_granted(granted.nonce) { Action::GiveBack } else { Action::Nothing }
    }

    /// Takes the news of a waiter, if there are any.
    pub fn take_news(&mut self, now: BootInstant, nonce: GrantId) -> Option<News> {
        self.registry.waiter_mut(nonce)?.take_news(now)
    }

    /// The instant since which the server owes an answer about a lock: one heartbeat period after its last answer, as nobody asks before.
    pub(crate) fn silent_since(&self, nonce: GrantId, lock: &L) -> Option<BootInstant> {
        let answered_at = self.queues.get(lock.name()).map(|queue| queue.answered_at);
        answered_at
            .or_else(|| self.registry.waiter(nonce).map(Waiter::asked_at))
            .map(|at| at.plus(lock_queue::LONGEST_PERIOD))
    }

    /// The reason why the last request about a lock failed, if it did.
    pub(crate) fn refused(&self, lock: &L) -> Option<Arc<str>> {
        self.queues.get(lock.name())?.refused.clone()
    }

    /// Asks for this lock after a pause, if anybody waits for it; returns whether anybody does.
    pub fn ask_after(&mut self, now: BootInstant, lock: &str, pause: Duration) -> bool {
        let queue = self.queues.get_mut(lock);
        queue.map(|queue| queue.ask_anew(&mut self.agenda, now.plus(pause))).is_some()
    }

    /// Asks for every lock at once: pushes may have been lost.
    pub fn ask_all(&mut self, now: BootInstant) {
        self.queues.values_mut().for_each(|queue| queue.ask_anew(&mut self.agenda, now));
    }

    /// Asks for every lock at once, in place of heartbeats whose answers nobody takes any more.
    pub fn begin_anew(&mut self, now: BootInstant) {
        self.queues.values_mut().for_each(|queue| queue.begin_anew(&mut self.agenda, now));
    }

    /// Goes on at a lock where more waiters find room than one run of a script lets in, whether or not one of them is here.
    pub(crate) fn go_on(&mut self, lock: L) {
        self.unfinished.insert(lock.name().to_owned(), lock);
    }

    /// Grants that nobody wants any more, so many at most, to be released.
    pub fn take_unwanted(&mut self, most: usize) -> Vec<(GrantId, L)> {
        self.registry.take_unwanted(most)
    }

    /// The instant at which the next heartbeat is due.
    pub fn next(&self, now: BootInstant) -> BootInstant {
        if self.unfinished.is_empty() { self.agenda.next() } else { now }
    }

    /// The heartbeats that are due, so many at most, and when the next ones are.
    pub fn due(&mut self, now: BootInstant, most: usize) -> (Vec<DueHeartbeat<L>>, BootInstant) {
        let mut due = Vec::new();
        let Self { registry, queues, agenda, heartbeats, unfinished, .. } = self;
        while due.len() < most
            && let Some(lock) = unfinished.keys().next().cloned()
            && let Some(lock) = unfinished.remove(&lock)
        {
            *heartbeats += 1;
            due.push(DueHeartbeat { number: *heartbeats, lock, nonces: Vec::new(), quiet: false, holder: None });
        }
        while due.len() < most
            && let Some(lock) = agenda.due(now).cloned()
            // Every entry is of a queue.
            && let Some(queue) = queues.get_mut(lock.name())
        {
            *heartbeats += 1;
            due.push(queue.heartbeat(agenda, now, *heartbeats, |nonce| is_in_the_dark(registry, nonce)));
        }
        (due, self.next(now))
    }

    /// Whether the lock is still waited for that this heartbeat is about.
    pub(crate) fn is_wanted(&self, due: &DueHeartbeat<L>) -> bool {
        let queue = self.queues.get(due.lock.name());
        due.nonces.is_empty() || queue.is_some_and(|queue| queue.heartbeat == due.number)
    }

    /// A heartbeat failed. What will not pass by itself is for the waiters to hear; their own requests bring it.
    pub fn failed(&mut self, now: BootInstant, due: &DueHeartbeat<L>, error: &Error) -> Actions<W> {
        let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        let Self { registry, queues, agenda, .. } = self;
        let Some(queue) = queues.get_mut(due.lock.name()).filter(|_| !due.nonces.is_empty()) else {
            return Actions { wake: Vec::new(), ask: false };
        };
        queue.failed(agenda, now, due.quiet, error);
        let waiters = queue.waiting.iter().filter(|_| !passes);
        let wake = waiters.filter_map(|(_, nonce)| Some(registry.waiter_mut(*nonce)?.ask_again())).collect();
        Actions { wake, ask: false }
    }

    /// Takes note that a short heartbeat found what is for a long one, which is due now.
    pub(crate) fn stays_due(&mut self, now: BootInstant, due: &DueHeartbeat<L>) {
        if let Some(queue) = self.queues.get_mut(due.lock.name()) {
            queue.stays_due(&mut self.agenda, now);
        }
    }

    /// Takes what a heartbeat brought.
    pub fn answered(&mut self, now: BootInstant, due: &DueHeartbeat<L>, reply: &HeartbeatReply) -> Actions<W> {
        let mut actions = Actions { wake: Vec::new(), ask: reply.pause == Pause::None };
        if actions.ask {
            self.go_on(due.lock.clone());
        }
        let Self { registry, queues, agenda, .. } = self;
        let Some(queue) = queues.get_mut(due.lock.name()).filter(|_| !due.nonces.is_empty()) else { return actions };
        // The news of a grant to an attempt that gave up were lost: a long heartbeat brings them.
        if reply.holder.is_some_and(|holder| registry.any_abandoned(holder.beginning())) {
            queue.stays_due(agenda, now);
            return actions;
        }
        // News were lost, perhaps also of those who were not asked for. Whoever was told meanwhile, or has left, has lost none.
        let is_news = |nonce: GrantId| is_in_the_dark(registry, nonce);
        let lost = reply.grants.iter().any(|granted| is_news(granted.nonce))
            || due.nonces.iter().zip(&reply.queued).any(|(nonce, queued)| !queued && is_news(*nonce));
        let more = lost && queue.waiting.iter().any(|(_, nonce)| !due.nonces.contains(nonce) && is_news(*nonce));
        queue.answered(agenda, now, reply, Lost { any: lost, more });
        if !reply.known {
            let waiters = queue.waiting.iter();
            let told = |(_, nonce): &(u64, GrantId)| registry.waiter_mut(*nonce)?.forgotten_at(reply.sent_at, true);
            actions.wake.extend(waiters.filter_map(told));
            return actions;
        }
        // The server has dropped this client, and somebody of it has come back since: whoever was not asked for is gone, too.
        if lost && reply.grants.is_empty() && !reply.queued.contains(&true) {
            let others = queue.waiting.iter().map(|(_, nonce)| *nonce).filter(|nonce| !due.nonces.contains(nonce));
            let in_the_dark = others.filter(|nonce| is_in_the_dark(registry, *nonce)).collect::<Vec<_>>();
            let told = |nonce| registry.waiter_mut(nonce)?.forgotten_at(reply.sent_at, false);
            actions.wake.extend(in_the_dark.into_iter().filter_map(told));
        }
        for granted in &reply.grants {
            match self.granted(now, *granted, Some(reply.sent_at)) {
                Action::Nothing => {}
                Action::Wake(waiter) => actions.wake.push(waiter),
                Action::GiveBack => actions.ask = true,
            }
        }
        for (nonce, queued) in due.nonces.iter().zip(&reply.queued) {
            let Some(waiter) = self.registry.waiter_mut(*nonce) else { continue };
            if *queued {
                waiter.still_queued(reply.sent_at, reply.last_token);
            } else if reply.grants.iter().all(|granted| granted.nonce != *nonce) {
                actions.wake.extend(waiter.forgotten_at(reply.sent_at, false));
            }
        }
        actions
    }

    /// Whether somebody waits for this lock, or did a moment ago: then the long ways are the shorter ones.
    pub(crate) fn is_busy(&self, now: BootInstant, lock: &str) -> bool {
        self.queues.contains_key(lock) || self.busy.contains(now, lock)
    }

    /// Whether no lock is waited for or counts as busy.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.is_empty() && self.queues.is_empty()
    }

    /// Remembers that this lock was found held.
    pub(crate) fn found_held(&mut self, now: BootInstant, lock: &str) {
        self.busy.add(now, lock);
    }

    /// Remembers that this lock was found free.
    pub(crate) fn found_free(&mut self, lock: &str) {
        self.busy.remove(lock);
    }

    /// Whether nobody is registered, remembered or asked for.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.registry.is_empty() && self.queues.is_empty() && self.agenda.next() == BootInstant::FAR_FUTURE
    }
}

/// Whether this waiter waits and has no news that it has yet to take.
fn is_in_the_dark<L, W>(registry: &Registry<Waiter<W>, L>, nonce: GrantId) -> bool {
    registry.waiter(nonce).is_some_and(|waiter| waiter.news.is_none())
}

#[cfg(test)]
mod tests;
