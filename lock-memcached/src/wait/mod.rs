//! Waiting, for a server that neither queues nor pushes.
//!
//! The waiters of one client for one lock stand in a queue, first come first served. Only the first one asks the server: a claim
//! when it comes, and then one cheap read, after pauses that grow to about 25 ms (longer if there is much to look at, see
//! [`pace`]), and a claim when the lock seems free. A holder in the same process does not let the first one find out by itself:
//! it turns its item into that one's, in one command, or else wakes it. Waiters of other clients get their turn because a client
//! has a lock only a few times in a row.
//!
//! Here is what every wait goes through: its place in the queue, and the first try. The looks after that are in [`looks`].

pub(crate) mod hand_over;
mod later;
pub(crate) mod looks;
mod pace;
pub(crate) mod turns;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, Grant, Kind, wait};
use lock_core::{Error, ErrorKind, Phase};
use tokio::sync::Notify;

use self::later::LaterWakes;
use self::looks::Offer;
use self::pace::Pace;
use self::turns::{AfterTry, CONTENDED_FOR, Standing, Ticket, Tried, Turns, WaitLimits};
use crate::acquire::{TryOutcome, WantedLock, may_pass};
use crate::items::record::HolderRecords;
use crate::registry::Entry;
use crate::store::keys::{self, Key};

/// Waits of one client.
pub(crate) struct Waits {
    queues: Arc<WaitQueues>,
    records: Arc<HolderRecords>,
    pace: Pace,
    longest_pause: Duration,
}

impl Waits {
    pub(crate) fn new(queues: &Arc<WaitQueues>, records: &Arc<HolderRecords>, longest_pause: Duration) -> Self {
        Self { queues: queues.clone(), records: records.clone(), pace: Pace::default(), longest_pause }
    }

    /// Waits in the queue until the lock is granted, or the deadline passes.
    pub(crate) async fn wait<W: WantedLock>(
        &self,
        wanted: &W,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let place = self.queues.join(wanted.queue());
        let (queue, ticket, mut turn) = (&*place.queue, place.ticket, place.turn.clone());
        let limits = WaitLimits {
            since: SystemClock.now(),
            deadline,
            patience: attempt.patience,
            op_timeout: attempt.op_timeout,
            longest_pause: self.longest_pause,
        };
        let waiter = Waiter { waits: self, wanted, attempt, queue, ticket, limits };
        // What most waits end before is boxed: they need not carry it about.
        let granted = async {
            loop {
                if let Some(turn) = turn.take()
                    && let ControlFlow::Break(answer) = Box::pin(waiter.stands_behind(&turn)).await
                {
                    return answer;
                }
                let pause = match waiter.first_try().await {
                    ControlFlow::Break(answer) => return answer,
                    ControlFlow::Continue(pause) => pause,
                };
                match Box::pin(waiter.looks_again(pause)).await {
                    ControlFlow::Break(answer) => return answer,
                    ControlFlow::Continue(()) => turn = Some(Arc::default()),
                }
            }
        };
        // However many requests are under way one after the other.
        let late = deadline.instant().plus(attempt.op_timeout);
        let Some(granted) = wait::before(&SystemClock, |_| late, pin!(granted)).await else {
            let what = "no answer within the operation timeout after the deadline";
            return Err(attempt.error(ErrorKind::Indeterminate, Phase::Wait, what));
        };
        let granted = granted?;
        Ok(self.records.described(attempt, wanted.entry(), granted))
    }
}

/// One waiter.
struct Waiter<'a, W> {
    waits: &'a Waits,
    wanted: &'a W,
    attempt: &'a Attempt,
    queue: &'a WaitQueue,
    ticket: Ticket,
    limits: WaitLimits,
}

/// Answer of a wait, or what it goes on with.
type Step<C> = ControlFlow<Result<Option<Grant>, Error>, C>;

impl<W: WantedLock> Waiter<'_, W> {
    /// Tries as the first one in the queue; the least pause before the next look. If others want the lock too, it has to have been left to
    /// them now and then.
    async fn first_try(&self) -> Step<Duration> {
        if let Some(at) = self.queue.first_try_at(&self.limits) {
            SystemClock.sleep_until(at).await;
        }
        self.tries(pin!(self.wanted.take())).await
    }

    /// Tries once, and tells the queue; the least pause before the next look.
    async fn tries(&self, mut attempt: Pin<&mut impl Future<Output = Result<TryOutcome, Error>>>) -> Step<Duration> {
        let was_ours = self.queue.is_held_here();
        // A try may be many requests. As long as it is polled, it keeps its place.
        let outcome = std::future::poll_fn(|cx| {
            self.queue.state().turns.asks(SystemClock.now(), &self.limits, self.ticket);
            attempt.as_mut().poll(cx)
        });
        let outcome = outcome.await;
        let tried = match &outcome {
            Ok(TryOutcome::Granted(_)) => Tried::Granted,
            Ok(TryOutcome::Held) => Tried::Held,
            Ok(TryOutcome::NotNow(why)) => Tried::NotNow(why.pause()),
            Err(error) => Tried::Failed { may_pass: may_pass(error) },
        };
        match self.queue.tried(&self.limits, tried, was_ours, self.wanted.entry()) {
            AfterTry::Ends => {
                let ended = outcome.and_then(|outcome| outcome.answer(Phase::Wait));
                ControlFlow::Break(ended.map_err(|error| self.ended_by(error)))
            }
            AfterTry::Pauses(pause) => ControlFlow::Continue(pause),
        }
    }

    /// The error of a wait. It is not definite while a key of the attempt may be at the server, such as that of a writer that
    /// waits for readers.
    fn ended_by(&self, error: Error) -> Error {
        if !error.is_definite() || self.wanted.entry().is_empty() {
            return error;
        }
        let what = "the wait ended, and what it has at the server may keep others out until it is removed";
        self.attempt.error(ErrorKind::Indeterminate, Phase::Wait, what).with_source(error)
    }

    /// Stands in the queue until it is the first one, because those before it are gone or are not polled.
    async fn stands_behind(&self, turn: &Arc<Notify>) -> Step<()> {
        loop {
            let until = match self.queue.stands(&self.limits, self.ticket, turn) {
                Standing::Until(until) => until,
                // Whoever was before it has the lock now, or has released it already: too soon for it to be handed over.
                Standing::First(watcher) => {
                    wake(watcher);
                    return ControlFlow::Continue(());
                }
                Standing::Over => return ControlFlow::Break(Ok(None)),
                Standing::Silent(patience) => {
                    let what = format!("the server has not answered for {patience:?}");
                    return ControlFlow::Break(Err(self.attempt.error(ErrorKind::Unavailable, Phase::Wait, what)));
                }
            };
            tokio::select! {
                biased;
                () = turn.notified() => {}
                () = SystemClock.sleep_until(until) => {
                    let now = SystemClock.now();
                    if wait::stood_still(until, now) {
                        self.queue.state().turns.awakes(now, &self.limits);
                    }
                    // Of two that are woken at once, the first one may come second.
                    tokio::task::yield_now().await;
                }
            }
        }
    }
}

/// Wakes a waiter, if there is one.
fn wake(waiter: Option<Arc<Notify>>) {
    waiter.iter().for_each(|waiter| waiter.notify_one());
}

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    map: Mutex<QueueMap>,
    watchers: Arc<LaterWakes>,
}

#[derive(Debug, Default)]
struct QueueMap {
    queues: HashMap<Key, Arc<WaitQueue>>,
    /// The instant of the last sweep.
    swept_at: Option<BootInstant>,
}

/// The waiters for one lock: [`Turns`] decides, and here are its mutex, its clock and its wake-ups.
#[derive(Debug)]
struct WaitQueue {
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    turns: Turns<Arc<Notify>, Offer>,
    /// Wakes the first one from its pause; made when that pauses, or is woken. Another one for whoever takes its place: one that was passed
    /// over would take a wake-up with it.
    wake: Option<Arc<Notify>>,
    /// The last one of this client that was granted the lock.
    holder: Weak<Entry>,
}

/// A waiter's ticket. The queue ends with the last one, unless others want the lock too.
struct QueueTicket {
    queues: Arc<WaitQueues>,
    key: Key,
    queue: Arc<WaitQueue>,
    ticket: Ticket,
    /// Wakes a waiter that came behind others when it is the first one, or has to watch it; nothing if it was the first one at once.
    turn: Option<Arc<Notify>>,
}

impl WaitQueues {
    /// Has a waiter enter this queue.
    fn join(self: &Arc<Self>, key: Key) -> QueueTicket {
        let mut all = self.all();
        all.sweep();
        let queue = all.queues.entry(key.clone()).or_insert_with(|| Arc::new(WaitQueue::new())).clone();
        let mut state = queue.state();
        let (ticket, turn) = match state.turns.comes(SystemClock.now()) {
            Some(first) => (first, None),
            None => {
                let turn = Arc::<Notify>::default();
                (state.turns.behind(turn.clone()), Some(turn))
            }
        };
        drop((state, all));
        QueueTicket { queues: self.clone(), key, queue, ticket, turn }
    }

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

    /// Has the first one in this queue look at once, or as soon as others have had their turn: its own pause may be much longer.
    fn wake(&self, key: &Key) {
        if let Some(queue) = self.all().queues.get(key) {
            let mut state = queue.state();
            if state.turns.is_waited_in() {
                state.wake.get_or_insert_default().notify_one();
            }
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

    fn all(&self) -> MutexGuard<'_, QueueMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
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

impl WaitQueue {
    fn new() -> Self {
        let turns = Turns::new(SystemClock.now());
        Self { state: Mutex::new(QueueState { turns, wake: None, holder: Weak::new() }) }
    }

    /// The instant of the first one's first try, if it is not now.
    fn first_try_at(&self, limits: &WaitLimits) -> Option<BootInstant> {
        self.state().turns.first_try_at(SystemClock.now(), limits)
    }

    /// Whether somebody of this client has the lock, as far as this queue has seen.
    fn is_held_here(&self) -> bool {
        self.state().holder.upgrade().is_some_and(|entry| entry.has_pieces())
    }

    /// The first one has tried, for this entry.
    fn tried(&self, limits: &WaitLimits, tried: Tried, was_ours: bool, entry: &Arc<Entry>) -> AfterTry {
        let mut state = self.state();
        if tried == Tried::Granted {
            state.holder = Arc::downgrade(entry);
        }
        state.turns.tried(SystemClock.now(), limits, tried, was_ours)
    }

    /// The step of a waiter that stands behind others.
    fn stands(&self, limits: &WaitLimits, ticket: Ticket, turn: &Arc<Notify>) -> Standing<Arc<Notify>> {
        let mut state = self.state();
        let standing = state.turns.stands(SystemClock.now(), limits, ticket, turn);
        if matches!(standing, Standing::First(_)) {
            state.wake = None;
        }
        standing
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for QueueTicket {
    fn drop(&mut self) {
        let mut all = self.queues.all();
        let mut state = self.queue.state();
        let now = SystemClock.now();
        let [next, watchers @ ..] = state.turns.goes(now, self.ticket);
        let is_over = state.turns.is_over(now);
        drop(state);
        // Otherwise it is swept away later.
        if is_over {
            all.queues.remove(&self.key);
        }
        drop(all);
        // One that is about to go passes its turn on.
        wake(next);
        watchers.into_iter().flatten().for_each(|watcher| self.queues.watchers.add(watcher));
    }
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;

    use super::*;
    use crate::client::cas::CasNumber;
    use crate::config::LongestLease;
    use crate::registry::Registry;
    use crate::store::keys::Keys;

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
