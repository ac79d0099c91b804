//! The waiters of one client for one lock, in order of arrival.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::driver::{Grant, Kind};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, oneshot};

use crate::locked::locked;
use crate::registry::Entry;
use crate::store::keys::{self, Key};
use crate::wait::fairness::{CONTENDED_FOR, Fairness};

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues(Mutex<QueueMap>);

#[derive(Debug, Default)]
struct QueueMap {
    queues: HashMap<Key, Arc<WaitQueue>>,
    /// The instant of the last sweep.
    swept_at: Option<BootInstant>,
}

/// The waiters for one lock, in order of arrival.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    /// Taken by the first one; the others wait for it in the order of their coming.
    pub(crate) first: Semaphore,
    /// The first one's offer to take the lock from a holder in this process.
    pub(crate) offer: Mutex<Option<Offer>>,
    pub(crate) fairness: Mutex<Fairness>,
    pub(crate) wake: Notify,
    /// The last one of this client that was granted the lock.
    holder: Mutex<Weak<Entry>>,
    answered_at: Mutex<BootInstant>,
}

/// The first one's wish, while it pauses.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) entry: Arc<Entry>,
    pub(crate) ttl: Duration,
    pub(crate) granted: oneshot::Sender<Grant>,
    /// Held, so that whoever undoes the first one's attempt waits until the hand-over is through.
    pub(crate) _turn: OwnedMutexGuard<()>,
}

impl WaitQueues {
    /// Whether anybody waits in this queue.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.all().queues.get(key).is_some_and(is_waited_in)
    }

    /// The first one's wish in this queue, if a lock may be handed to it now.
    pub(crate) fn offer(&self, key: &Key) -> Option<Offer> {
        // The map stays locked: a queue that is in use here would not end with its last waiter.
        let all = self.all();
        let queue = all.queues.get(key)?;
        let (mut offer, mut fairness, now) = (locked(&queue.offer), locked(&queue.fairness), SystemClock.now());
        if offer.is_none() || !fairness.may_continue(now) {
            return None;
        }
        fairness.counts(now);
        let offer = offer.take()?;
        queue.held_by(&offer.entry);
        Some(offer)
    }

    /// Has the first one in this queue look at once, unless it is others' turn.
    fn wake(&self, key: &Key) {
        if let Some(queue) = self.all().queues.get(key)
            && is_waited_in(queue)
            && SystemClock.now() >= locked(&queue.fairness).others_until()
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
        drop(all);
        QueueTicket { queues: self.clone(), key, queue }
    }

    fn all(&self) -> MutexGuard<'_, QueueMap> {
        locked(&self.0)
    }
}

impl WaitQueue {
    fn new() -> Self {
        Self {
            first: Semaphore::new(1),
            offer: Mutex::default(),
            fairness: Mutex::default(),
            wake: Notify::new(),
            holder: Mutex::default(),
            answered_at: Mutex::new(SystemClock.now()),
        }
    }

    pub(crate) fn held_by(&self, entry: &Arc<Entry>) {
        *locked(&self.holder) = Arc::downgrade(entry);
    }

    /// Whether somebody of this client has the lock, as far as this queue has seen.
    pub(crate) fn is_held_here(&self) -> bool {
        locked(&self.holder).upgrade().is_some_and(|entry| entry.has_pieces())
    }

    pub(crate) fn answered(&self) {
        *locked(&self.answered_at) = SystemClock.now();
    }

    /// The instant at which the server has been silent for too long, for who came at `since`.
    pub(crate) fn silence(&self, since: BootInstant, patience: Duration) -> BootInstant {
        since.max(*locked(&self.answered_at)).plus(patience)
    }
}

impl Offer {
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
}

impl QueueTicket {
    pub(crate) fn queue(&self) -> &WaitQueue {
        &self.queue
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut all = self.queues.all();
        // Ours, and the one in the map: whoever enters holds the map.
        if Arc::strong_count(&self.queue) > 2 {
            return;
        }
        // Otherwise it is swept away later.
        if !locked(&self.queue.fairness).is_contended(SystemClock.now()) {
            all.queues.remove(&self.key);
        }
    }
}

impl QueueMap {
    /// Ends the queues that nobody waits in and that have not been left just now. Whoever enters one sweeps, at most once a
    /// second: what stays is what was contended within the last two seconds before the client's last wait.
    fn sweep(&mut self) {
        let now = SystemClock.now();
        if self.swept_at.is_none_or(|before| now.since(before) >= CONTENDED_FOR) {
            self.queues.retain(|_, queue| is_waited_in(queue) || locked(&queue.fairness).is_contended(now));
            self.swept_at = Some(now);
        }
    }
}

/// Whether anybody stands in it: the map has the first reference.
fn is_waited_in(queue: &Arc<WaitQueue>) -> bool {
    Arc::strong_count(queue) > 1
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
    fn a_lock_is_held_here_until_its_holder_has_given_it_back() {
        let (queue, registry, key) = (WaitQueue::new(), registry(), Key::from("lock"));
        let attempt = Attempt::new("lock".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
        let entry = registry.register(&attempt).unwrap();
        assert!(!queue.is_held_here());
        entry.won(&key, CasNumber::of_a_test(1));
        queue.held_by(&entry);
        assert!(queue.is_held_here());
        entry.lost(&key);
        assert!(!queue.is_held_here());
    }
}
