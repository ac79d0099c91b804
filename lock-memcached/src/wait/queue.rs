//! The waiters of one client for one lock, in order of arrival.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Grant, Kind};
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use crate::registry::Entry;
use crate::store::keys::{self, Key};
use crate::wait::turns::{AfterTry, CONTENDED_FOR, Standing, Ticket, Tried, Turns, WaitLimits};

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<QueueMap>);

#[derive(Debug, Default)]
struct QueueMap {
    queues: HashMap<Key, Arc<WaitQueue>>,
    /// The instant of the last sweep.
    swept_at: Option<BootInstant>,
}

/// The waiters for one lock: [`Turns`] decides, and here are its mutex, its clock and its wake-ups.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    state: Mutex<QueueState>,
    /// Wakes the first one from its pause.
    pub(crate) wake: Notify,
}

#[derive(Debug)]
struct QueueState {
    turns: Turns<oneshot::Sender<()>, Offer>,
    /// The last one of this client that was granted the lock.
    holder: Weak<Entry>,
}

/// The request of the first one to be handed the lock, while it pauses.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) entry: Arc<Entry>,
    pub(crate) ttl: Duration,
    granted: oneshot::Sender<Grant>,
    /// Held, so that whoever undoes the first one's attempt waits until the hand-over is through.
    _turn: OwnedMutexGuard<()>,
}

impl WaitQueues {
    /// Whether anybody waits in this queue.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.all().queues.get(key).is_some_and(|queue| queue.state().turns.is_waited_in())
    }

    /// The offer of the first one in this queue, if a lock may be handed to it now.
    pub(crate) fn offer(&self, key: &Key) -> Option<Offer> {
        // The map stays locked: a queue that is in use here would not end with its last waiter.
        let all = self.all();
        let mut state = all.queues.get(key)?.state();
        let offer = state.turns.hands_over(SystemClock.now())?;
        state.holder = Arc::downgrade(&offer.entry);
        Some(offer)
    }

    /// Has the first one in this queue look at once, unless it is others' turn.
    fn wake(&self, key: &Key) {
        if let Some(queue) = self.all().queues.get(key)
            && queue.state().turns.looks_at_once(SystemClock.now())
        {
            queue.wake.notify_one();
        }
    }

    /// Has those look at once who wait for this lock, which may be free now.
    pub(crate) fn wake_lock(&self, lock: &Key, kind: Kind) {
        match kind {
            Kind::Read | Kind::Write => {
                self.wake(&keys::writer(lock));
                self.wake(&keys::readers(lock));
            }
            _ => self.wake(lock),
        }
    }

    pub(crate) fn join(self: &Arc<Self>, key: Key) -> QueueTicket {
        let mut all = self.all();
        all.sweep();
        let queue = all.queues.entry(key.clone()).or_insert_with(|| Arc::new(WaitQueue::new())).clone();
        let mut state = queue.state();
        let (ticket, turn) = match state.turns.comes() {
            Some(first) => (first, None),
            None => {
                let (wake, turn) = oneshot::channel();
                (state.turns.behind(wake), Some(turn))
            }
        };
        drop((state, all));
        QueueTicket { queues: self.clone(), key, queue, ticket, turn }
    }

    fn all(&self) -> MutexGuard<'_, QueueMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitQueue {
    fn new() -> Self {
        let state = QueueState { turns: Turns::new(SystemClock.now()), holder: Weak::new() };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }

    /// The instant of the first one's first try, if it is not now.
    pub(crate) fn first_try_at(&self, limits: &WaitLimits) -> Option<BootInstant> {
        self.state().turns.first_try_at(SystemClock.now(), limits)
    }

    /// Whether somebody of this client has the lock, as far as this queue has seen.
    pub(crate) fn is_held_here(&self) -> bool {
        self.state().holder.upgrade().is_some_and(|entry| entry.has_pieces())
    }

    /// The first one has tried, for this entry.
    pub(crate) fn tried(&self, limits: &WaitLimits, tried: Tried, was_ours: bool, entry: &Arc<Entry>) -> AfterTry {
        let mut state = self.state();
        if tried == Tried::Granted {
            state.holder = Arc::downgrade(entry);
        }
        state.turns.tried(SystemClock.now(), limits, tried, was_ours)
    }

    /// The instant of the next look, after a pause that begins now.
    pub(crate) fn next_look(&self, limits: &WaitLimits, pause: Duration) -> BootInstant {
        let mut state = self.state();
        let at = state.turns.next_look(SystemClock.now(), limits, pause);
        state.turns.pauses_until(at);
        at
    }

    /// The step of a waiter that stands behind others.
    pub(crate) fn stands(&self, limits: &WaitLimits) -> Standing {
        self.state().turns.stands(SystemClock.now(), limits)
    }

    /// The first one can be handed the lock, as long as the answer lives.
    pub(crate) fn offers(&self, offer: Offer) -> Withdrawal<'_> {
        self.state().turns.offers(offer);
        Withdrawal(self)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes an offer back that nobody has taken.
pub(crate) struct Withdrawal<'a>(&'a WaitQueue);

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        self.0.state().turns.withdraws();
    }
}

impl Offer {
    /// An offer of this entry, whose turn it holds.
    pub(crate) fn new(
        entry: Arc<Entry>,
        ttl: Duration,
        granted: oneshot::Sender<Grant>,
        turn: OwnedMutexGuard<()>,
    ) -> Self {
        Self { entry, ttl, granted, _turn: turn }
    }

    /// Tells the first one that the lock is its own.
    pub(crate) fn grant(self, grant: Grant) {
        // If it has gone, its attempt is undone as soon as this ends.
        let _ = self.granted.send(grant);
    }
}

/// A waiter's ticket. The queue ends with the last one, unless others want the lock too.
pub(crate) struct QueueTicket {
    queues: Arc<WaitQueues>,
    key: Key,
    queue: Arc<WaitQueue>,
    ticket: Ticket,
    /// Ends when a waiter that came behind others is the first one; nothing if it was so at once.
    turn: Option<oneshot::Receiver<()>>,
}

impl QueueTicket {
    /// The queue, and the turn that has to be waited for.
    pub(crate) fn queue(&mut self) -> (&WaitQueue, Option<&mut oneshot::Receiver<()>>) {
        (&self.queue, self.turn.as_mut())
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut all = self.queues.all();
        let mut state = self.queue.state();
        let next = state.turns.goes(self.ticket);
        let is_over = state.turns.is_over(SystemClock.now());
        drop(state);
        // Otherwise it is swept away later.
        if is_over {
            all.queues.remove(&self.key);
        }
        drop(all);
        // If it is about to go, it passes its turn on.
        next.map(|next| next.send(()));
    }
}

impl QueueMap {
    /// Ends the queues that nobody waits in and that have not been left just now. Whoever enters one sweeps, at most once a
    /// second: what stays is what was contended within the last two seconds before the client's last wait.
    fn sweep(&mut self) {
        let now = SystemClock.now();
        if self.swept_at.is_none_or(|before| now.since(before) >= CONTENDED_FOR) {
            self.queues.retain(|_, queue| !queue.state().turns.is_over(now));
            self.swept_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;
    use lock_core::driver::{Attempt, Kind};

    use super::*;
    use crate::client::cas::CasNumber;
    use crate::registry::Registry;
    use crate::store::keys::Keys;
    use crate::store::values::LongestLease;

    fn registry() -> Registry {
        Registry::new(&Arc::new(Keys::new("lock")), LongestLease::new(Duration::from_secs(30)))
    }

    #[test]
    fn a_lock_is_held_here_until_its_holder_has_released_it() {
        let (queue, registry, key) = (WaitQueue::new(), registry(), Key::from("lock"));
        let attempt = Attempt::new("lock".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
        let entry = registry.register(&attempt).unwrap();
        assert!(!queue.is_held_here());
        entry.won(&key, CasNumber::of_a_test(1));
        queue.state().holder = Arc::downgrade(&entry);
        assert!(queue.is_held_here());
        entry.lost(&key);
        assert!(!queue.is_held_here());
    }
}
