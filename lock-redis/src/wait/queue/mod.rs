//! This client's waiters: who waits for what, and how each learns that it is its turn.
//!
//! The queue itself is at the server. Here each waiter has a place under its nonce, so that a push, the reply to a
//! release of the same process, or the reply to a heartbeat can reach it. Knowledge from here may save a wake-up; it never
//! makes a grant.
//!
//! # When a pushed grant counts
//! A push may be old. It is believed from the instant at which the waiter's last request that was answered "still
//! waiting" was **sent** (the grant is younger than that answer), and for the claim time only. Past that it is no grant
//! until the server has confirmed it, which one more acquisition under the same nonce asks for.

mod agenda;
mod echo;
mod known_holder;
mod waiter;
mod waiter_guard;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, ErrorKind, FencingToken, GrantId};
use tokio::sync::Notify;

use self::agenda::{Agenda, Entry};
pub(crate) use self::echo::Echo;
pub(crate) use self::known_holder::KnownHolder;
use self::waiter::LocalWaiter;
pub(crate) use self::waiter::News;
pub(crate) use self::waiter_guard::{Enqueued, WaiterGuard};
use crate::registry::Registry;
use crate::store::keys::Keys;

/// The time between two heartbeats of a client for a lock on which it waits: a lost push, a foreign release or a crashed holder
/// costs at most this. Sooner when the holder's lease ends sooner, but at most twice a second.
const PERIOD: Duration = Duration::from_millis(850);
const SHORTEST_PERIOD: Duration = Duration::from_millis(500);
/// [`PERIOD`] with its jitter, and until its [`ROUND`].
const LONGEST_PERIOD: Duration = Duration::from_millis(935);
/// Usual signs of life wait for the next round, so that many locks share a request.
const ROUND: Duration = Duration::from_millis(40);
/// [`PERIOD`] for a key that is shared with other libraries, whose releases tell nobody and whose waiters ask as often.
const SHARED_PERIOD: Duration = Duration::from_millis(200);
/// The pause before the next ones are asked for when a heartbeat has found lost news.
const SOON: Duration = Duration::from_millis(5);
/// The pause before a heartbeat that failed is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// The time for which a lock that was found held counts as busy, and the number of such locks that are remembered.
const BUSY: Duration = Duration::from_secs(1);
const MOST_BUSY: usize = 1024;
/// The number of short heartbeats that follow each other at most.
const MOST_QUIET: u8 = 64;
/// The number of a client's first waiters for which one heartbeat asks.
const ASKED: usize = 64;

/// Everybody who waits through one client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    queues: Mutex<QueueState>,
    /// Whether any lock is waited for or counts as busy; most clients most of the time have none.
    any: AtomicBool,
    /// Wakes the heartbeat task when something is due earlier than it thinks.
    pub(crate) wake: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    registry: Registry<LocalWaiter>,
    queues: HashMap<String, LockQueue>,
    agenda: Agenda,
    /// The number of heartbeats so far.
    heartbeats: u64,
    /// Locks at which more waiters find room than the last run of a script let in.
    unfinished: HashMap<String, Arc<Keys>>,
    /// Locks that were found held, and until when the short ways are not worth a try.
    busy: HashMap<String, BootInstant>,
}

/// The waiters on one lock, in the order of their tickets.
#[derive(Debug)]
struct LockQueue {
    keys: Arc<Keys>,
    waiting: BTreeMap<(u64, GrantId), Arc<LocalWaiter>>,
    /// The time to ask for it; never while a heartbeat is on its way.
    entry: Entry,
    /// Whether a heartbeat is due or on its way, and the number of the last one.
    asking: bool,
    heartbeat: u64,
    /// The time to ask again, as was found out since that heartbeat was sent.
    again_at: BootInstant,
    /// The number of answers in a row that had no news.
    quiet: u8,
    /// The holder of the lock, as far as the last short heartbeat has told.
    holder: Option<KnownHolder>,
    answered_at: BootInstant,
    /// The reason why the last heartbeat failed, if it did.
    refused: Option<Arc<str>>,
}

/// A heartbeat that is due.
#[derive(Debug)]
pub(crate) struct DueHeartbeat {
    /// The number by which its reply is known.
    pub(crate) number: u64,
    pub(crate) keys: Arc<Keys>,
    /// Of waiters; none if it only goes on where another script stopped.
    pub(crate) nonces: Vec<GrantId>,
    /// Whether nothing but a sign of life is expected: it has one waiter, and the last answer had no news.
    pub(crate) quiet: bool,
    /// The holder whose lease lasts until the next heartbeat at least, if that is known.
    pub(crate) holder: Option<KnownHolder>,
}

/// The answer to a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeartbeatReply {
    pub(crate) sent_at: BootInstant,
    /// Whether the server knew that this client waits.
    pub(crate) known: bool,
    pub(crate) pause: Pause,
    /// The last token that was given, if it was asked for.
    pub(crate) last_token: Option<u64>,
    /// For each nonce that was asked for: whether it is in the queue.
    pub(crate) queued: Vec<bool>,
    /// The holder of the lock, if that was told.
    pub(crate) holder: Option<KnownHolder>,
    /// The grants of this client: of a mutex the one grant, of other kinds those that were asked for.
    pub(crate) grants: Vec<Granted>,
}

/// The time to ask again, as the server tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// At once: there is more to do than one run of a script may.
    None,
    /// After this time, when the holder's lease ends.
    Until(Duration),
    /// There is no holder with a lease.
    Regular,
    /// A foreign client holds a shared key, and this client's waiter is the first: when it gives the key back.
    Foreign,
    /// As `Foreign`, but the key is left free for foreign clients for so long.
    Free(Duration),
}

impl Pause {
    /// As `scripts/heartbeat.lua` tells it.
    pub(crate) fn of(ms: i64) -> Self {
        match u64::try_from(ms) {
            Ok(ms) => Self::Until(Duration::from_millis(ms)),
            Err(_) if ms == -3 => Self::None,
            Err(_) if ms == -4 => Self::Foreign,
            Err(_) if ms <= -1000 => Self::Free(Duration::from_millis(ms.unsigned_abs() - 1000)),
            Err(_) => Self::Regular,
        }
    }
}

/// A waiter's grant, for its claim time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) nonce: GrantId,
    pub(crate) token: FencingToken,
    pub(crate) claim: Duration,
}

impl WaitQueues {
    /// A place for this nonce, before anything is sent: a push may come before the reply.
    pub(crate) fn enter(self: &Arc<Self>, nonce: GrantId, keys: &Arc<Keys>) -> WaiterGuard {
        let waiter = Arc::new(LocalWaiter::new(nonce));
        self.lock().registry.register(nonce, waiter.clone());
        WaiterGuard { queues: self.clone(), keys: keys.clone(), waiter, granted: AtomicBool::new(false) }
    }

    /// Whether somebody waits for this lock, or did a moment ago: then the long ways are the shorter ones.
    pub(crate) fn is_busy(&self, lock: &str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let queues = self.lock();
        if queues.busy.is_empty() && queues.queues.is_empty() {
            self.any.store(false, Ordering::Release);
            return false;
        }
        queues.queues.contains_key(lock) || queues.busy.get(lock).is_some_and(|until| SystemClock.now() < *until)
    }

    /// Nothing of this attempt can be granted any more, or nobody cares any more.
    pub(crate) fn forget(&self, nonce: GrantId) {
        self.lock().registry.forget(nonce);
    }

    /// Remembers that this lock was found held.
    pub(crate) fn found_held(&self, lock: &str) {
        let mut queues = self.lock();
        if queues.busy.len() >= MOST_BUSY {
            let now = SystemClock.now();
            queues.busy.retain(|_, until| now < *until);
            if queues.busy.len() >= MOST_BUSY {
                queues.busy.clear();
            }
        }
        queues.busy.insert(lock.to_owned(), SystemClock.now().plus(BUSY));
        self.any.store(true, Ordering::Release);
    }

    /// Remembers that this lock was found free.
    pub(crate) fn found_free(&self, lock: &str) {
        self.lock().busy.remove(lock);
    }

    /// A push, or a reply that names grants of this client: one has the lock for the claim time, from a request that was
    /// sent at `sent_at` or, for a push, from the waiter's own last question.
    pub(crate) fn granted(&self, granted: Granted, sent_at: Option<BootInstant>) {
        let nonce = granted.nonce;
        let mut queues = self.lock();
        let Some(waiter) = queues.registry.waiter(nonce).cloned() else {
            if queues.registry.is_unwanted(nonce) {
                self.wake.notify_one();
            }
            return;
        };
        drop(queues);
        waiter.granted(granted, sent_at);
    }

    /// Asks for this lock after a pause, if anybody waits for it.
    pub(crate) fn ask_after(&self, lock: &str, pause: Duration) {
        let QueueState { queues, agenda, .. } = &mut *self.lock();
        if let Some(queue) = queues.get_mut(lock) {
            queue.quiet = 0;
            queue.ask_by(agenda, SystemClock.now().plus(pause));
            self.wake.notify_one();
        }
    }

    /// Goes on at a lock where more waiters find room than one run of a script lets in, whether or not one of them is here.
    pub(crate) fn go_on(&self, keys: Arc<Keys>) {
        self.lock().unfinished.insert(keys.lock.clone(), keys);
        self.wake.notify_one();
    }

    /// Asks for every lock at once: pushes may have been lost.
    pub(crate) fn ask_all(&self) {
        let now = SystemClock.now();
        let QueueState { queues, agenda, .. } = &mut *self.lock();
        for queue in queues.values_mut() {
            queue.quiet = 0;
            queue.ask_by(agenda, now);
        }
        self.wake.notify_one();
    }

    /// Grants that nobody wants any more, to be given back.
    pub(crate) fn unwanted(&self) -> Vec<(GrantId, Arc<Keys>)> {
        self.lock().registry.take_unwanted()
    }

    /// The heartbeats that are due, so many at most, and when the next ones are.
    pub(crate) fn due(&self, most: usize) -> (Vec<DueHeartbeat>, BootInstant) {
        let now = SystemClock.now();
        let mut due = Vec::new();
        let QueueState { queues, agenda, heartbeats, unfinished, .. } = &mut *self.lock();
        while due.len() < most
            && let Some(lock) = unfinished.keys().next().cloned()
            && let Some(keys) = unfinished.remove(&lock)
        {
            *heartbeats += 1;
            due.push(DueHeartbeat { number: *heartbeats, keys, nonces: Vec::new(), quiet: false, holder: None });
        }
        while due.len() < most
            && let Some(keys) = agenda.due(now).cloned()
            // Every entry is of a queue.
            && let Some(queue) = queues.get_mut(&keys.lock)
        {
            agenda.put_off(&mut queue.entry, BootInstant::FAR_FUTURE);
            (queue.asking, queue.again_at) = (true, BootInstant::FAR_FUTURE);
            let nonces = queue.waiting.keys().take(ASKED).map(|(_, nonce)| *nonce).collect();
            *heartbeats += 1;
            queue.heartbeat = *heartbeats;
            let quiet = queue.waiting.len() == 1 && (1..MOST_QUIET).contains(&queue.quiet);
            let holder = queue.holder.take().filter(|holder| quiet && holder.lasts_until(now.plus(LONGEST_PERIOD)));
            due.push(DueHeartbeat { number: *heartbeats, keys, nonces, quiet, holder });
        }
        let next = if unfinished.is_empty() { agenda.next() } else { now };
        (due, next)
    }

    /// Whether the lock is still waited for that this heartbeat is about.
    pub(crate) fn is_wanted(&self, due: &DueHeartbeat) -> bool {
        let queues = self.lock();
        due.nonces.is_empty() || queues.queues.get(&due.keys.lock).is_some_and(|queue| queue.heartbeat == due.number)
    }

    /// A heartbeat failed. What will not pass by itself is for the waiters to hear; their own requests bring it.
    pub(crate) fn unanswered(&self, due: &DueHeartbeat, error: &Error) {
        let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
        let QueueState { queues, agenda, .. } = &mut *self.lock();
        let Some(queue) = queues.get_mut(&due.keys.lock).filter(|_| !due.nonces.is_empty()) else { return };
        (queue.asking, queue.quiet) = (false, 0);
        let pause = if due.quiet { Duration::ZERO } else { RETRY };
        agenda.put_off(&mut queue.entry, SystemClock.now().plus(pause).min(queue.again_at));
        queue.refused = Some(error.to_string().into());
        if !passes {
            queue.waiting.values().for_each(|waiter| waiter.ask_again());
        }
    }

    /// A short heartbeat found what is for a long one.
    pub(crate) fn is_not_quiet(&self, due: &DueHeartbeat) {
        let QueueState { queues, agenda, .. } = &mut *self.lock();
        if let Some(queue) = queues.get_mut(&due.keys.lock) {
            (queue.asking, queue.quiet) = (false, 0);
            agenda.put_off(&mut queue.entry, SystemClock.now());
        }
    }

    /// Takes what a heartbeat brought.
    pub(crate) fn answered(&self, due: &DueHeartbeat, answer: &HeartbeatReply) {
        let now = SystemClock.now();
        if answer.pause == Pause::None {
            self.go_on(due.keys.clone());
        }
        let mut guard = self.lock();
        let QueueState { queues, agenda, registry, .. } = &mut *guard;
        let Some(queue) = queues.get_mut(&due.keys.lock).filter(|_| !due.nonces.is_empty()) else { return };
        queue.asking = false;
        queue.answered_at = now;
        queue.refused = None;
        // News were lost, perhaps also of those who were not asked for.
        let is_news = |granted: &Granted| registry.waiter(granted.nonce).is_some();
        let lost = answer.grants.iter().any(is_news) || answer.queued.contains(&false);
        let sound = answer.known && !lost && queue.again_at == BootInstant::FAR_FUTURE;
        queue.quiet = match queue.quiet {
            quiet if sound && quiet < MOST_QUIET => quiet + 1,
            // Now and then the long way is asked: it also looks after what is shared by all waiters.
            _ => u8::from(sound),
        };
        let pause = interval(now, queue.keys.shared, answer.pause);
        let pause = if lost && queue.waiting.len() > due.nonces.len() { pause.min(SOON) } else { pause };
        let at = now.plus(pause);
        let at = if sound && !queue.keys.shared { next_round(at) } else { at };
        agenda.put_off(&mut queue.entry, at.min(queue.again_at));
        queue.holder = answer.holder;
        if !answer.known {
            let forgotten = queue.waiting.values().filter(|waiter| waiter.asked_at() <= answer.sent_at);
            forgotten.for_each(|waiter| waiter.is_forgotten());
            return;
        }
        let waiters: Vec<_> = due.nonces.iter().map(|nonce| registry.waiter(*nonce).cloned()).collect();
        drop(guard);
        for granted in &answer.grants {
            self.granted(*granted, Some(answer.sent_at));
        }
        for (waiter, queued) in waiters.iter().zip(&answer.queued) {
            let Some(waiter) = waiter else { continue };
            if *queued {
                waiter.still_queued(answer.sent_at, answer.last_token);
            } else if waiter.asked_at() <= answer.sent_at
                && answer.grants.iter().all(|granted| granted.nonce != waiter.nonce)
            {
                waiter.ask_again();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        locked(&self.queues)
    }
}

impl QueueState {
    /// The queue at this lock, a new one if nobody waits there yet; and the order of all queues.
    fn queue(&mut self, keys: &Arc<Keys>, now: BootInstant) -> (&mut LockQueue, &mut Agenda) {
        let Self { queues, agenda, .. } = self;
        let queue = queues.entry(keys.lock.clone()).or_insert_with(|| LockQueue {
            keys: keys.clone(),
            waiting: BTreeMap::new(),
            entry: agenda.enter(BootInstant::FAR_FUTURE, keys.clone()),
            asking: false,
            heartbeat: 0,
            again_at: BootInstant::FAR_FUTURE,
            quiet: 0,
            holder: None,
            answered_at: now,
            refused: None,
        });
        (queue, agenda)
    }

    /// Nobody of this nonce waits at this lock any more.
    fn leave(&mut self, lock: &str, ticket: u64, nonce: GrantId) {
        let Some(queue) = self.queues.get_mut(lock) else { return };
        queue.waiting.remove(&(ticket, nonce));
        if queue.waiting.is_empty() {
            self.agenda.remove(queue.entry);
            self.queues.remove(lock);
        }
    }
}

impl LockQueue {
    /// Asks at this time at the latest, or as soon as the heartbeat is answered that is on its way.
    fn ask_by(&mut self, agenda: &mut Agenda, at: BootInstant) {
        if self.asking {
            self.again_at = self.again_at.min(at);
        } else if at < self.entry.at() {
            agenda.put_off(&mut self.entry, at);
        }
    }

    /// Asks no later than the holder's lease asks for. Says whether the heartbeat task does not know of this queue yet.
    fn ask_within(&mut self, agenda: &mut Agenda, now: BootInstant, pause: Pause) -> bool {
        let is_new = !self.asking && self.entry.at() == BootInstant::FAR_FUTURE;
        self.ask_by(agenda, now.plus(interval(now, self.keys.shared, pause)));
        is_new
    }
}

/// Until the next heartbeat: at the end of the holder's lease, or after [`PERIOD`] or [`SHARED_PERIOD`], give or take a tenth; or when a
/// shared key has been left free for long enough.
fn interval(now: BootInstant, shared: bool, pause: Pause) -> Duration {
    if let Pause::Free(left) = pause {
        return left.min(SHARED_PERIOD) + Duration::from_millis(1);
    }
    let jitter = now.since_origin().subsec_nanos() % 100;
    let regular = if shared { SHARED_PERIOD } else { PERIOD } * (950 + jitter) / 1000;
    let end = if let Pause::Until(end) = pause { end + Duration::from_millis(2) } else { regular };
    end.clamp(SHORTEST_PERIOD.min(regular), regular)
}

/// The first round at this instant or later.
fn next_round(at: BootInstant) -> BootInstant {
    let late = at.since_origin().as_nanos() % ROUND.as_nanos();
    // Less than a round.
    let left = if late == 0 { 0 } else { (ROUND.as_nanos() - late) as u64 };
    at.plus(Duration::from_nanos(left))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data valid after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
