//! The waiters of one client, in a queue for each lock.
//!
//! Only the first waiter of a queue asks the servers, so that a wait costs them the same however many tasks wait. The others wait for its
//! place. If the first waiter has not asked for long, its future is not polled: the next one takes its place. A release in the same client
//! hands the lock over: the first waiter's request follows the release on every connection. Local knowledge saves requests; it never makes
//! a grant.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, Deadline, SystemClock};
use lock_core::driver::{Attempt, wait};
use tokio::sync::Notify;

use super::AGAIN;
use super::fairness::{HandoverRun, REST};
use super::release_news::ReleaseNews;

/// Takes this client out of the waiters of a lock at the servers, which tell the next client if they have told this one.
type StopWaiting = Box<dyn Fn(&str) + Send + Sync>;

/// The queues of one client: one for each lock that is waited for.
pub(in crate::quorum) struct Queues {
    queues: Mutex<HashMap<String, Arc<QuorumQueue>>>,
    /// The runs of keys that foreign clients use too, and when each went on last: they outlast a queue, so that a lock that one
    /// task takes again and again is left free now and then too.
    shared: Mutex<HashMap<String, (HandoverRun, BootInstant)>>,
    majority: usize,
    stop_waiting: StopWaiting,
}

/// The waiters for one lock.
#[derive(Debug)]
struct QuorumQueue {
    state: Mutex<QuorumQueueState>,
}

#[derive(Debug)]
struct QuorumQueueState {
    /// The waiters by their numbers, in the order of their coming.
    waiters: BTreeMap<u64, LocalWaiter>,
    next_number: u64,
    /// Those that have had the first place and not left: one, and those that were passed over.
    asking: BTreeSet<u64>,
    /// The instant at which the servers were asked last.
    asked_at: BootInstant,
    /// The grant that a waiter of this queue was given last, until this client ends it. An end that comes from outside is not told.
    held_by: Option<GrantId>,
    run: HandoverRun,
    told: ReleaseNews,
    /// The instant of a majority's last answer.
    answered_at: BootInstant,
    /// Whether somebody held the lock, or may have, when the servers were asked last.
    may_be_held: bool,
    /// Whether servers may count this client among the waiters.
    is_registered: bool,
}

/// A waiter, as the others of its queue see it.
#[derive(Debug)]
struct LocalWaiter {
    /// Told of a better place, and of a release.
    news: Arc<Notify>,
    /// Whether it was the first one and did not ask: its future is not polled.
    is_absent: bool,
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

/// The time after which a shared key that nobody releases any more begins a new run.
const FORGOTTEN: Duration = Duration::from_secs(1);
/// The number of runs that are kept. Of more, those that are over are forgotten, and then the oldest one.
const RUNS: usize = 1024;

impl Queues {
    pub(in crate::quorum) fn new(majority: usize, stop_waiting: StopWaiting) -> Arc<Self> {
        Arc::new(Self { queues: Mutex::default(), shared: Mutex::default(), majority, stop_waiting })
    }

    /// The number of servers that is more than half of them.
    pub(in crate::quorum) fn majority(&self) -> usize {
        self.majority
    }

    /// Enters the queue of this lock.
    pub(in crate::quorum) fn enter(self: &Arc<Self>, lock: &str) -> QueuePlace {
        let entered_at = SystemClock.now();
        let mut queues = locked(&self.queues);
        let queue = queues.entry(lock.to_owned()).or_insert_with(|| Arc::new(QuorumQueue::new(entered_at))).clone();
        let (number, news) = locked(&queue.state).enter();
        drop(queues);
        QueuePlace { queues: self.clone(), lock: lock.to_owned(), queue, number, news, entered_at }
    }

    /// Decides who gets the lock that this grant releases; `shared` if foreign clients use its key too.
    pub(in crate::quorum) fn released(&self, lock: &str, grant: GrantId, shared: bool) -> Handover {
        let now = SystemClock.now();
        let queue = self.of(lock);
        let mut state = queue.as_ref().map(|queue| locked(&queue.state));
        let here = state.as_mut().is_some_and(|state| state.held_by.take_if(|holder| *holder == grant).is_some());
        if shared {
            let pause = self.shared_run_may_stay(lock, now);
            return Handover { here, elsewhere: !here || !pause.is_zero(), pause };
        }
        let stays = here && state.is_some_and(|mut state| state.run.may_stay(now));
        Handover { here, elsewhere: !stays, pause: Duration::ZERO }
    }

    /// Forgets that this grant has the lock: it has ended otherwise than by a release, or is nobody's of this client any more.
    pub(in crate::quorum) fn ended(&self, lock: &str, grant: GrantId) {
        if let Some(queue) = self.of(lock) {
            locked(&queue.state).held_by.take_if(|holder| *holder == grant);
        }
    }

    /// Counts a release of a shared key; for how long it is left free.
    fn shared_run_may_stay(&self, lock: &str, now: BootInstant) -> Duration {
        let mut shared = locked(&self.shared);
        if shared.len() >= RUNS {
            shared.retain(|_, (_, last)| now.since(*last) < FORGOTTEN);
        }
        if shared.len() >= RUNS
            && !shared.contains_key(lock)
            && let Some(oldest) = shared.iter().min_by_key(|(_, (_, last))| *last).map(|(lock, _)| lock.clone())
        {
            shared.remove(&oldest);
        }
        let (run, last) = shared.entry(lock.to_owned()).or_insert_with(|| (HandoverRun::default(), now));
        if now.since(*last) >= FORGOTTEN {
            *run = HandoverRun::default();
        }
        *last = now;
        run.set_others_wait(true);
        if run.may_stay(now) {
            return Duration::ZERO;
        }
        run.rest(now);
        REST
    }

    /// The end of a rest, in which this client does not ask for a shared key.
    fn rests_until(&self, lock: &str) -> Option<BootInstant> {
        locked(&self.shared).get(lock).and_then(|(run, _)| run.rests_until(SystemClock.now()))
    }

    /// Has the first waiter ask after this pause: a release is on its way on every connection.
    pub(in crate::quorum) fn hand_over(&self, lock: &str, pause: Duration) {
        let from = SystemClock.now().plus(pause);
        if !self.tell(lock, |told| told.by_holder(from)) {
            // The waiter has gone meanwhile.
            (self.stop_waiting)(lock);
        }
    }

    /// Takes a server's word that this lock is free, to be asked for after this pause.
    pub(in crate::quorum) fn told(&self, lock: &str, server: usize, pause: Duration) {
        let from = SystemClock.now().plus(pause);
        if !self.tell(lock, |told| told.by_server(server, from)) {
            (self.stop_waiting)(lock);
        }
    }

    /// Notes whether other clients wait for this lock.
    pub(in crate::quorum) fn set_others_wait(&self, lock: &str, others_wait: bool) {
        if let Some(queue) = self.of(lock) {
            locked(&queue.state).run.set_others_wait(others_wait);
        }
    }

    /// Takes note that a server counts this client among the waiters for this lock. If nobody of it waits any more, it is taken
    /// out.
    pub(in crate::quorum) fn note_registered(&self, lock: &str) {
        let queues = locked(&self.queues);
        if let Some(queue) = queues.get(lock) {
            locked(&queue.state).is_registered = true;
            return;
        }
        drop(queues);
        (self.stop_waiting)(lock);
    }

    /// Whether anybody is there to be told. The map stays locked: a queue that ends takes all its news into account.
    fn tell(&self, lock: &str, news: impl FnOnce(&mut ReleaseNews)) -> bool {
        let queues = locked(&self.queues);
        let Some(queue) = queues.get(lock) else { return false };
        let mut state = locked(&queue.state);
        news(&mut state.told);
        state.tell_asking();
        true
    }

    fn of(&self, lock: &str) -> Option<Arc<QuorumQueue>> {
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
            state: Mutex::new(QuorumQueueState {
                waiters: BTreeMap::new(),
                next_number: 0,
                asking: BTreeSet::new(),
                asked_at: now,
                held_by: None,
                run: HandoverRun::default(),
                told: ReleaseNews::default(),
                answered_at: now,
                may_be_held: false,
                is_registered: false,
            }),
        }
    }
}

impl QuorumQueueState {
    /// Adds a waiter: its number, and where it is told of what is new.
    fn enter(&mut self) -> (u64, Arc<Notify>) {
        let (number, news) = (self.next_number, Arc::<Notify>::default());
        self.next_number += 1;
        self.waiters.insert(number, LocalWaiter { news: news.clone(), is_absent: false });
        (number, news)
    }

    /// The waiters that ask when they are the first, in order.
    fn present(&self) -> impl Iterator<Item = (u64, &LocalWaiter)> {
        self.waiters.iter().filter(|(_, waiter)| !waiter.is_absent).map(|(number, waiter)| (*number, waiter))
    }

    /// Whether the waiter is the first or the second one.
    fn is_in_front(&self, number: u64) -> [bool; 2] {
        let mut front = self.present().map(|(present, _)| present == number);
        [front.next().unwrap_or_default(), front.next().unwrap_or_default()]
    }

    /// Tells the first one that it is, and the second one that it has to look after the first.
    fn tell_front(&self) {
        self.present().take(2).for_each(|(_, waiter)| waiter.news.notify_one());
    }

    /// Tells those that ask, and the first one, which asks now.
    fn tell_asking(&self) {
        let asking = self.asking.iter().filter_map(|number| self.waiters.get(number));
        asking.for_each(|waiter| waiter.news.notify_one());
        if let Some((_, first)) = self.present().next() {
            first.news.notify_one();
        }
    }

    /// Has the second waiter take the place of the first, if that has not asked since this instant.
    fn pass_over_first(&mut self, second: u64, asked_at: BootInstant, now: BootInstant) {
        if !self.is_in_front(second)[1] || self.asked_at != asked_at {
            return;
        }
        if let Some(first) = self.waiters.values_mut().find(|waiter| !waiter.is_absent) {
            first.is_absent = true;
        }
        self.asked_at = now;
        self.tell_front();
    }
}

/// A waiter's place in a queue. The last one that leaves ends the queue.
#[derive(Debug)]
pub(in crate::quorum) struct QueuePlace {
    queues: Arc<Queues>,
    lock: String,
    queue: Arc<QuorumQueue>,
    number: u64,
    news: Arc<Notify>,
    entered_at: BootInstant,
}

impl QueuePlace {
    /// Waits for the first place, which it has until this is dropped, at most until the deadline or until the servers have been silent
    /// for the attempt's patience. Returns the instant from which the patience of the first one counts.
    pub(in crate::quorum) async fn first(
        &self,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<BootInstant, WaitEnded> {
        let mut awake_since = self.entered_at;
        loop {
            let ([is_first, is_second], asked_at) = {
                let mut state = self.state();
                let place = state.is_in_front(self.number);
                if place[0] {
                    state.asking.insert(self.number);
                }
                (place, state.asked_at)
            };
            let silent_since = self.silent_since().max(awake_since);
            if is_first {
                return Ok(silent_since);
            }
            let ends = silent_since.plus(attempt.patience).min(deadline.instant());
            // One that looks after the first is enough.
            let passes_over =
                if is_second { asked_at.plus(UNASKED + attempt.op_timeout) } else { BootInstant::FAR_FUTURE };
            let due = ends.min(passes_over);
            tokio::select! {
                biased;
                () = self.news.notified() => continue,
                () = SystemClock.sleep_until(due) => {}
            }
            let now = SystemClock.now();
            if wait::stood_still(due, now) {
                // The first one could not ask either.
                awake_since = now;
                self.state().asked_at = now;
            }
            if deadline.has_passed(now) {
                return Err(if self.state().may_be_held { WaitEnded::Held } else { WaitEnded::Unknown });
            }
            if now >= self.silent_since().max(awake_since).plus(attempt.patience) {
                return Err(WaitEnded::Unknown);
            }
            if now >= passes_over {
                self.state().pass_over_first(self.number, asked_at, now);
            }
        }
    }

    /// The instant of a majority's last answer, or of the waiter's coming.
    pub(in crate::quorum) fn silent_since(&self) -> BootInstant {
        self.state().answered_at.max(self.entered_at)
    }

    /// The key of the lock.
    pub(in crate::quorum) fn lock(&self) -> &str {
        &self.lock
    }

    /// The instant of a majority's last answer, if a waiter of this queue has the lock, as far as this client knows: its release will
    /// tell, and any other end will not.
    pub(in crate::quorum) fn held_here_since_answer(&self) -> Option<BootInstant> {
        let state = self.state();
        state.held_by.map(|_| state.answered_at)
    }

    /// Pauses while the lock is left to foreign clients, at most until this instant.
    pub(in crate::quorum) async fn rest(&self, deadline: BootInstant) {
        if let Some(until) = self.queues.rests_until(&self.lock) {
            SystemClock.sleep_until(until.min(deadline)).await;
        }
    }

    /// Forgets the news: the servers are asked now.
    pub(in crate::quorum) fn asks(&self) {
        let mut state = self.state();
        (state.told, state.asked_at) = (ReleaseNews::default(), SystemClock.now());
        // This waiter may have been passed over. If another one asks by now, that one keeps the first place: this one may again not be
        // polled.
        if state.asking.iter().all(|number| *number == self.number)
            && let Some(own) = state.waiters.get_mut(&self.number)
        {
            own.is_absent = false;
        }
    }

    /// Notes that a majority has answered, and whether somebody may hold the lock.
    pub(in crate::quorum) fn answered(&self, may_be_held: bool) {
        let mut state = self.state();
        (state.answered_at, state.may_be_held) = (SystemClock.now(), may_be_held);
    }

    /// Notes whether servers may count this client among the waiters now; returns what was noted before.
    pub(in crate::quorum) fn registers(&self, is_registered: bool) -> bool {
        std::mem::replace(&mut self.state().is_registered, is_registered)
    }

    /// Whether this client has to be taken out of the waiters at the servers, as nobody else of it waits; it counts as done.
    pub(in crate::quorum) fn deregisters(&self) -> bool {
        let mut state = self.state();
        state.waiters.len() == 1 && std::mem::take(&mut state.is_registered)
    }

    /// Notes that no majority has answered.
    pub(in crate::quorum) fn not_answered(&self) {
        self.state().may_be_held = false;
    }

    /// Notes the grant: the next waiter need not ask before it is released.
    pub(in crate::quorum) fn granted(&self, grant: GrantId) {
        self.answered(true);
        let mut state = self.state();
        // Whatever came meanwhile was said of the same release.
        (state.held_by, state.told) = (Some(grant), ReleaseNews::default());
    }

    /// Pauses until there is news, at most until this instant.
    pub(in crate::quorum) async fn pause(&self, until: BootInstant) {
        loop {
            let ask_at = self.state().told.ask_at(self.queues.majority).min(until);
            if SystemClock.now() >= ask_at {
                return;
            }
            tokio::select! {
                () = self.news.notified() => {}
                () = SystemClock.sleep_until(ask_at) => {}
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, QuorumQueueState> {
        locked(&self.queue.state)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut queues = locked(&self.queues.queues);
        let mut state = self.state();
        let is_in_front = state.is_in_front(self.number).contains(&true);
        state.waiters.remove(&self.number);
        state.asking.remove(&self.number);
        if !state.waiters.is_empty() {
            if is_in_front {
                state.tell_front();
            }
            return;
        }
        queues.remove(&self.lock);
        let is_counted_on = state.is_registered || state.told.is_any();
        drop((state, queues));
        if is_counted_on {
            (self.queues.stop_waiting)(&self.lock);
        }
    }
}

/// Every critical section leaves the data whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lock_core::Owner;
    use lock_core::driver::Kind;

    use super::*;

    fn queues() -> (Arc<Queues>, Arc<AtomicUsize>) {
        let passed = Arc::<AtomicUsize>::default();
        let count = passed.clone();
        let stop_waiting = move |lock: &str| {
            assert_eq!(lock, "a");
            count.fetch_add(1, Ordering::Relaxed);
        };
        (Queues::new(2, Box::new(stop_waiting)), passed)
    }

    fn grant() -> GrantId {
        GrantId::random().unwrap()
    }

    #[test]
    fn a_release_is_handed_over_to_a_waiter_of_the_same_client_and_otherwise_told() {
        let (queues, _) = queues();
        let told = |here, elsewhere| Handover { here, elsewhere, pause: Duration::ZERO };
        assert_eq!(queues.released("a", grant(), false), told(false, true), "nobody waits");
        let (place, id) = (queues.enter("a"), grant());
        assert_eq!(queues.released("a", id, false), told(false, true), "a grant of a try");
        place.granted(id);
        assert_eq!(queues.released("a", id, false), told(true, false));
        assert_eq!(queues.released("a", id, false), told(false, true), "a repetition");
    }

    #[test]
    fn a_grant_that_has_ended_without_a_release_is_waited_for_no_more() {
        let (queues, _) = queues();
        let (place, id) = (queues.enter("a"), grant());
        assert_eq!(place.held_here_since_answer(), None);
        place.granted(id);
        queues.ended("a", grant());
        assert!(place.held_here_since_answer().is_some(), "another one has ended");
        queues.ended("a", id);
        assert_eq!(place.held_here_since_answer(), None);
        queues.ended("b", id);
    }

    #[test]
    fn a_run_of_hand_overs_ends_if_others_wait() {
        let (queues, _) = queues();
        let place = queues.enter("a");
        queues.set_others_wait("a", true);
        let mut stayed = 0;
        loop {
            let id = grant();
            place.granted(id);
            let Handover { here, elsewhere, .. } = queues.released("a", id, false);
            assert!(here);
            if elsewhere {
                break;
            }
            stayed += 1;
        }
        assert!((1..=20).contains(&stayed), "{stayed}");
    }

    /// Between two of its releases nobody of this client waits: the account is kept all the same.
    #[test]
    fn a_shared_key_is_left_free_now_and_then() {
        let (queues, _) = queues();
        let rested = (0..=20).position(|_| queues.released("a", grant(), true).pause == REST);
        assert!(rested.is_some(), "21 releases in a row");
        assert!(queues.rests_until("a").is_some());
        assert_eq!(queues.released("b", grant(), true).pause, Duration::ZERO, "another key");
    }

    #[test]
    fn news_that_nobody_waits_for_is_passed_on() {
        let (queues, passed) = queues();
        queues.told("a", 0, Duration::ZERO);
        queues.hand_over("a", Duration::ZERO);
        assert_eq!(passed.load(Ordering::Relaxed), 2, "nobody waits");
        let (first, second) = (queues.enter("a"), queues.enter("a"));
        queues.hand_over("a", Duration::ZERO);
        drop(first);
        assert_eq!(passed.load(Ordering::Relaxed), 2, "the second one has it");
        drop(second);
        assert_eq!(passed.load(Ordering::Relaxed), 3, "the last one left without asking");
        assert!(locked(&queues.queues).is_empty());
    }

    #[test]
    fn a_registration_that_is_heard_of_late_ends_with_the_last_waiter() {
        let (queues, passed) = queues();
        let place = queues.enter("a");
        queues.note_registered("a");
        assert_eq!(passed.load(Ordering::Relaxed), 0, "somebody waits");
        drop(place);
        assert_eq!(passed.load(Ordering::Relaxed), 1);
        queues.note_registered("a");
        assert_eq!(passed.load(Ordering::Relaxed), 2, "nobody waits");
    }

    #[tokio::test]
    async fn a_waiter_behind_the_first_ends_with_its_deadline_or_its_patience() {
        let (queues, _) = queues();
        let (first, second) = (queues.enter("a"), queues.enter("a"));
        let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
        first.first(&attempt, Deadline::NEVER).await.unwrap();
        let soon = || Deadline::after(SystemClock.now(), Duration::from_millis(5));
        assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Unknown, "nothing was answered yet");
        first.answered(true);
        assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Held);
        first.not_answered();
        assert_eq!(second.first(&attempt, soon()).await.unwrap_err(), WaitEnded::Unknown);
        attempt.patience = Duration::from_millis(5);
        assert_eq!(second.first(&attempt, Deadline::NEVER).await.unwrap_err(), WaitEnded::Unknown);
    }

    #[tokio::test]
    async fn a_first_one_that_does_not_ask_is_passed_over_until_the_others_have_gone() {
        let (queues, _) = queues();
        let (first, second, third) = (queues.enter("a"), queues.enter("a"), queues.enter("a"));
        let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), Duration::from_secs(1)).unwrap();
        attempt.op_timeout = Duration::from_millis(1);
        first.first(&attempt, Deadline::NEVER).await.unwrap();
        first.asks();
        let soon = Deadline::after(SystemClock.now(), Duration::from_millis(5));
        assert!(second.first(&attempt, soon).await.is_err(), "the first one has just asked");
        second.first(&attempt, Deadline::NEVER).await.unwrap();
        // It is polled once, and left alone again: news goes to the one that asks all the same, and that one's place to the third.
        first.asks();
        queues.hand_over("a", Duration::ZERO);
        second.pause(BootInstant::FAR_FUTURE).await;
        second.asks();
        drop(second);
        third.first(&attempt, Deadline::after(SystemClock.now(), Duration::from_millis(500))).await.unwrap();
        drop(third);
        first.asks();
        assert_eq!(first.state().is_in_front(first.number), [true, false]);
    }

    #[test]
    fn a_second_one_that_has_become_the_first_passes_nobody_over() {
        let (queues, _) = queues();
        let (first, second) = (queues.enter("a"), queues.enter("a"));
        let asked_at = second.state().asked_at;
        drop(first);
        second.state().pass_over_first(second.number, asked_at, SystemClock.now());
        assert_eq!(second.state().is_in_front(second.number), [true, false]);
    }
}
