//! The waiters of one client, in a queue for each lock.
//!
//! Only the first waiter of a queue asks the servers, so that a wait costs them the same however many tasks wait. The others wait for its
//! place. If the first waiter has not asked for long, its future is not polled: the first of those that are polled takes its place. A
//! release in the same client hands the lock over: the first waiter's request follows the release on every connection. Local knowledge
//! saves requests; it never makes a grant.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, wait};
use tokio::sync::Notify;

use super::AGAIN;
use super::fairness::HandoverRun;
use super::local_order::{LocalOrder, LocalRank};
use super::release_news::ReleaseNews;
use super::shared_runs::SharedRuns;

/// Takes this client out of the waiters of a lock at the servers, which tell the next client if they have told this one.
type StopWaiting = Box<dyn Fn(&str) + Send + Sync>;

type QueueMap = HashMap<String, Arc<Mutex<QuorumQueue>>>;

/// The queues of one client: one for each lock that is waited for.
pub(in crate::quorum) struct Queues {
    queues: Mutex<QueueMap>,
    shared: SharedRuns,
    majority: usize,
    stop_waiting: StopWaiting,
}

/// The waiters for one lock.
#[derive(Debug)]
struct QuorumQueue {
    order: LocalOrder,
    /// The grant that a waiter of this queue was given last, until this client ends it. An end that comes from outside is not told.
    held_by: Option<GrantId>,
    run: HandoverRun,
    /// The news after which nobody has asked yet.
    told: Option<ReleaseNews>,
    /// The instant of a majority's last answer.
    answered_at: BootInstant,
    /// The instant of the first request since then.
    unanswered_since: Option<BootInstant>,
    /// Whether somebody held the lock, or may have, when the servers were asked last.
    may_be_held: bool,
    /// Whether servers may count this client among the waiters.
    is_registered: bool,
}

/// The end of a wait in a queue without the first place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::quorum) enum WaitEnded {
    /// The deadline has passed while somebody may have held the lock.
    Held,
    /// The deadline or the patience is over, and nobody is known to hold the lock.
    Unknown,
}

/// The next place of a released lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::quorum) struct Handover {
    /// A waiter of this client asks as soon as the release is sent.
    pub(in crate::quorum) here: bool,
    /// The servers tell the next waiting client.
    pub(in crate::quorum) elsewhere: bool,
    /// The pause after which both ask, in which foreign clients have their turn.
    pub(in crate::quorum) pause: Duration,
}

/// The longest pause between two requests of a first waiter whose future is polled.
const UNASKED: Duration = AGAIN.saturating_add(Duration::from_millis(200));

/// The time by which each waiter gives the one before it precedence in calling those that are polled.
const LATER: Duration = Duration::from_millis(300);

/// The time in which those that are polled answer a call. One that is later has its place again, and asks beside another one at worst.
const ANSWERED: Duration = Duration::from_millis(300);

impl Queues {
    pub(in crate::quorum) fn new(majority: usize, stop_waiting: StopWaiting) -> Arc<Self> {
        Arc::new(Self { queues: Mutex::default(), shared: SharedRuns::default(), majority, stop_waiting })
    }

    /// The number of servers that is more than half of them.
    pub(in crate::quorum) fn majority(&self) -> usize {
        self.majority
    }

    /// Enters the queue of this lock; `shared` if foreign clients use its key too.
    pub(in crate::quorum) fn enter(self: &Arc<Self>, lock: &str, shared: bool) -> QueuePlace {
        let entered_at = SystemClock.now();
        let mut queues = locked(&self.queues);
        let queue =
            queues.entry(lock.to_owned()).or_insert_with(|| Arc::new(Mutex::new(QuorumQueue::new(entered_at)))).clone();
        let (number, news) = locked(&queue).order.enter(entered_at);
        drop(queues);
        QueuePlace { queues: self.clone(), lock: lock.to_owned(), shared, queue, number, news, entered_at }
    }

    /// Decides who gets the lock that this grant releases; `shared` if foreign clients use its key too.
    pub(in crate::quorum) fn released(&self, lock: &str, grant: GrantId, shared: bool) -> Handover {
        let now = SystemClock.now();
        let queue = self.of(lock);
        let mut queue = queue.as_deref().map(locked);
        let here = queue.as_mut().is_some_and(|queue| queue.held_by.take_if(|holder| *holder == grant).is_some());
        if shared {
            let pause = self.shared.released(lock, now);
            return Handover { here, elsewhere: !here || !pause.is_zero(), pause };
        }
        let stays = here && queue.is_some_and(|mut queue| queue.run.may_stay(now));
        Handover { here, elsewhere: !stays, pause: Duration::ZERO }
    }

    /// Forgets that this grant has the lock: it has ended otherwise than by a release, or is nobody's of this client any more. Nobody
    /// tells that the lock is free then, so the first waiter asks.
    pub(in crate::quorum) fn ended(&self, lock: &str, grant: GrantId) {
        let Some(queue) = self.of(lock) else { return };
        let mut queue = locked(&queue);
        if queue.held_by.take_if(|holder| *holder == grant).is_some() {
            queue.told.get_or_insert_default().by_holder(SystemClock.now());
            queue.order.tell_asking();
        }
    }

    /// Has the first waiter ask after this pause: a release is on its way on every connection.
    pub(in crate::quorum) fn hand_over(&self, lock: &str, pause: Duration) {
        let from = SystemClock.now().plus(pause);
        // The waiter may have gone meanwhile.
        self.tell_or_stop(lock, |told| told.by_holder(from));
    }

    /// Takes a server's word that this lock is free, to be asked for after this pause.
    pub(in crate::quorum) fn told(&self, lock: &str, server: usize, pause: Duration) {
        let from = SystemClock.now().plus(pause);
        self.tell_or_stop(lock, |told| told.by_server(server, from));
    }

    /// Notes whether other clients wait for this lock.
    pub(in crate::quorum) fn set_others_wait(&self, lock: &str, others_wait: bool) {
        if let Some(queue) = self.of(lock) {
            locked(&queue).run.set_others_wait(others_wait);
        }
    }

    /// Takes note that a server counts this client among the waiters for this lock. If nobody of it waits any more, it is taken
    /// out.
    pub(in crate::quorum) fn note_registered(&self, lock: &str) {
        let queues = locked(&self.queues);
        match queues.get(lock) {
            Some(queue) => locked(queue).is_registered = true,
            None => self.stop_waiting(lock, &queues),
        }
    }

    /// Tells the first waiter or, if nobody waits any more, takes this client out of the waiters. The map stays locked: a queue that ends
    /// takes all its news into account.
    fn tell_or_stop(&self, lock: &str, news: impl FnOnce(&mut ReleaseNews)) {
        let queues = locked(&self.queues);
        let Some(queue) = queues.get(lock) else { return self.stop_waiting(lock, &queues) };
        let mut queue = locked(queue);
        news(queue.told.get_or_insert_default());
        queue.order.tell_asking();
    }

    /// Sends that this client waits for this lock no longer. The map is locked meanwhile: whoever enters a queue for the lock does so
    /// afterwards, and registers behind this on every connection.
    fn stop_waiting(&self, lock: &str, _nobody_enters: &QueueMap) {
        (self.stop_waiting)(lock);
    }

    fn of(&self, lock: &str) -> Option<Arc<Mutex<QuorumQueue>>> {
        locked(&self.queues).get(lock).cloned()
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("locks", &locked(&self.queues).len()).finish_non_exhaustive()
    }
}

impl QuorumQueue {
    fn new(now: BootInstant) -> Self {
        Self {
            order: LocalOrder::new(now),
            held_by: None,
            run: HandoverRun::default(),
            told: None,
            answered_at: now,
            unanswered_since: None,
            may_be_held: false,
            is_registered: false,
        }
    }
}

/// A waiter's place in a queue. The last one that leaves ends the queue.
#[derive(Debug)]
pub(in crate::quorum) struct QueuePlace {
    queues: Arc<Queues>,
    lock: String,
    /// Whether foreign clients use the lock's key too.
    shared: bool,
    queue: Arc<Mutex<QuorumQueue>>,
    number: u64,
    news: Arc<Notify>,
    entered_at: BootInstant,
}

impl QueuePlace {
    /// Waits for the first place, which it has until this is dropped, at most until the deadline or until the servers have been silent
    /// for the attempt's patience. That counts while somebody asks them. Returns the instant from which the patience of the first one
    /// counts.
    pub(in crate::quorum) async fn first(
        &self,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<BootInstant, WaitEnded> {
        let mut awake_since = self.entered_at;
        loop {
            let now = SystemClock.now();
            let silent_since = self.unanswered_since().map(|since| since.max(awake_since));
            let (ahead, asked) = match self.queue().order.take_rank(self.number, now) {
                LocalRank::First => return Ok(silent_since.unwrap_or(now)),
                LocalRank::Behind { ahead, asked } => (ahead, asked),
            };
            let passes_over = match asked.called_at {
                None => asked.at.plus(UNASKED + attempt.op_timeout + after(ahead)),
                Some(called_at) => called_at.plus(ANSWERED),
            };
            // A request that was left alone counts as one for as long as the first one takes to ask again.
            let is_asked = |now| now < asked.at.plus(UNASKED + attempt.op_timeout);
            let loses_patience = silent_since.filter(|_| is_asked(now)).map(|since| since.plus(attempt.patience));
            let looks_at = loses_patience.unwrap_or_else(|| now.plus(attempt.patience.max(UNASKED)));
            let due = looks_at.min(deadline.instant()).min(passes_over);
            tokio::select! {
                biased;
                () = self.news.notified() => continue,
                () = SystemClock.sleep_until(due) => {}
            }
            let now = SystemClock.now();
            if wait::stood_still(due, now) {
                // The first one may not have been able to ask either. If only this one was not polled, the others are not to wait for that.
                awake_since = now;
            }
            if deadline.has_passed(now) {
                return Err(if self.queue().may_be_held { WaitEnded::Held } else { WaitEnded::Unknown });
            }
            if is_asked(now)
                && let Some(since) = self.unanswered_since()
                && now >= since.max(awake_since).plus(attempt.patience)
            {
                return Err(WaitEnded::Unknown);
            }
            if now >= passes_over {
                let mut queue = self.queue();
                if queue.order.pass_over(self.number, asked, now) {
                    // Nobody has asked for long.
                    queue.unanswered_since = None;
                }
            }
        }
    }

    /// The instant of the first request that was made since a majority's last answer, or of the waiter's coming; `None` if nobody has asked
    /// since.
    fn unanswered_since(&self) -> Option<BootInstant> {
        self.queue().unanswered_since.map(|since| since.max(self.entered_at))
    }

    /// The key of the lock.
    pub(in crate::quorum) fn lock(&self) -> &str {
        &self.lock
    }

    /// The instant of a majority's last answer, if a waiter of this queue has the lock, as far as this client knows: its release will
    /// tell, and any other end will not.
    pub(in crate::quorum) fn held_here_since_answer(&self) -> Option<BootInstant> {
        let queue = self.queue();
        queue.held_by.map(|_| queue.answered_at)
    }

    /// Pauses while the lock is left to foreign clients, at most until this instant.
    pub(in crate::quorum) async fn rest(&self, deadline: BootInstant) {
        if self.shared
            && let Some(until) = self.queues.shared.rests_until(&self.lock, SystemClock.now())
        {
            SystemClock.sleep_until(until.min(deadline)).await;
        }
    }

    /// Forgets the news: the servers are asked now.
    pub(in crate::quorum) fn asks(&self) {
        let (mut queue, now) = (self.queue(), SystemClock.now());
        queue.told = None;
        queue.unanswered_since.get_or_insert(now);
        queue.order.asks(self.number, now);
    }

    /// Notes that a majority has answered, and whether somebody may hold the lock.
    pub(in crate::quorum) fn answered(&self, may_be_held: bool) {
        let mut queue = self.queue();
        (queue.answered_at, queue.unanswered_since, queue.may_be_held) = (SystemClock.now(), None, may_be_held);
    }

    /// Notes whether servers may count this client among the waiters now; returns what was noted before.
    pub(in crate::quorum) fn registers(&self, is_registered: bool) -> bool {
        std::mem::replace(&mut self.queue().is_registered, is_registered)
    }

    /// Whether this client has to be taken out of the waiters at the servers, as nobody else of it waits; it counts as done.
    pub(in crate::quorum) fn deregisters(&self) -> bool {
        let mut queue = self.queue();
        queue.order.len() == 1 && std::mem::take(&mut queue.is_registered)
    }

    /// Notes that no majority has answered.
    pub(in crate::quorum) fn not_answered(&self) {
        self.queue().may_be_held = false;
    }

    /// Notes the grant: the next waiter need not ask before it is released.
    pub(in crate::quorum) fn granted(&self, grant: GrantId) {
        self.answered(true);
        let mut queue = self.queue();
        // Whatever came meanwhile was said of the same release.
        (queue.held_by, queue.told) = (Some(grant), None);
    }

    /// Pauses until there is news, at most until this instant.
    pub(in crate::quorum) async fn pause(&self, until: BootInstant) {
        loop {
            let told_at = self.queue().told.as_ref().map(|told| told.ask_at(self.queues.majority));
            let ask_at = told_at.map_or(until, |told_at| told_at.min(until));
            if SystemClock.now() >= ask_at {
                return;
            }
            tokio::select! {
                () = self.news.notified() => {}
                () = SystemClock.sleep_until(ask_at) => {}
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, QuorumQueue> {
        locked(&self.queue)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queues = locked(&self.queues.queues);
        let mut queue = self.queue();
        queue.order.leave(self.number);
        if queue.order.len() > 0 {
            return;
        }
        queues.remove(&self.lock);
        if queue.is_registered || queue.told.is_some() {
            drop(queue);
            self.queues.stop_waiting(&self.lock, &queues);
        }
    }
}

/// The time by which a waiter calls later than the second one does, which may not be polled either.
fn after(ahead: usize) -> Duration {
    // At most the number of places that are told apart.
    LATER * u32::try_from(ahead.saturating_sub(1)).unwrap_or_default()
}

/// Every critical section leaves the data whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
