//! This client's waiters: the machine that decides about them, with the clock, the lock and the wake-ups that it needs.

mod waiter_guard;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use lock_core::{Error, GrantId};
use tokio::sync::Notify;

pub(crate) use self::waiter_guard::WaiterGuard;
use super::machine::{Action, Actions, Granted, HeartbeatReply, Lock, Waiters};
use crate::store::keys::Keys;

/// A heartbeat that is due.
pub(crate) type DueHeartbeat = super::machine::DueHeartbeat<Arc<Keys>>;

/// The waiters of one client.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    waiters: Mutex<Waiters<Arc<Keys>, Arc<Notify>>>,
    /// Whether any lock is waited for or counts as busy; most clients most of the time have none.
    any: AtomicBool,
    /// The last instant at which a reply was lost that may have named the next holder of a lock.
    lost_at: Mutex<Option<BootInstant>>,
    /// Wakes the heartbeat task when something is due earlier than it thinks.
    pub(crate) wake: Notify,
}

impl Lock for Arc<Keys> {
    fn name(&self) -> &str {
        &self.lock
    }

    fn is_shared(&self) -> bool {
        self.shared
    }
}

impl WaitQueues {
    /// A place for this nonce, before anything is sent.
    pub(crate) fn enter(self: &Arc<Self>, nonce: GrantId, keys: &Arc<Keys>) -> WaiterGuard {
        let told = Arc::new(Notify::new());
        self.lock().enter(nonce, told.clone());
        WaiterGuard { queues: self.clone(), keys: keys.clone(), nonce, told, granted: AtomicBool::new(false) }
    }

    /// Whether somebody waits for this lock, or did a moment ago.
    pub(crate) fn is_busy(&self, lock: &str) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let waiters = self.lock();
        if waiters.is_idle() {
            self.any.store(false, Ordering::Release);
            return false;
        }
        waiters.is_busy(SystemClock.now(), lock)
    }

    /// Nothing of this attempt can be granted any more.
    pub(crate) fn forget(&self, nonce: GrantId) {
        self.lock().forget(nonce);
    }

    /// Remembers that this lock was found held.
    pub(crate) fn found_held(&self, lock: &str) {
        let mut waiters = self.lock();
        waiters.found_held(SystemClock.now(), lock);
        self.any.store(true, Ordering::Release);
    }

    /// Remembers that this lock was found free.
    pub(crate) fn found_free(&self, lock: &str) {
        self.lock().found_free(lock);
    }

    /// A push, or a reply that names grants of this client, with the instant at which its request was sent.
    pub(crate) fn granted(&self, granted: Granted, sent_at: Option<BootInstant>) {
        let action = self.lock().granted(SystemClock.now(), granted, sent_at);
        match action {
            Action::Nothing => {}
            Action::Wake(waiter) => waiter.notify_one(),
            Action::GiveBack => self.wake.notify_one(),
        }
    }

    /// Asks for this lock after a pause, if anybody waits for it.
    pub(crate) fn ask_after(&self, lock: &str, pause: Duration) {
        if self.lock().ask_after(SystemClock.now(), lock, pause) {
            self.wake.notify_one();
        }
    }

    /// Asks for this lock at once: a reply was lost that may have named its next holder. That may also be one whose request to wait is on
    /// its way; it asks when it is queued.
    pub(crate) fn news_lost(&self, lock: &str) {
        *self.lost_at() = Some(SystemClock.now());
        self.ask_after(lock, Duration::ZERO);
    }

    /// Goes on at a lock where more waiters find room than one run of a script lets in.
    pub(crate) fn go_on(&self, keys: Arc<Keys>) {
        self.lock().go_on(keys);
        self.wake.notify_one();
    }

    /// Asks for every lock at once: pushes may have been lost.
    pub(crate) fn ask_all(&self) {
        self.lock().ask_all(SystemClock.now());
        self.wake.notify_one();
    }

    /// Asks for every lock at once, in place of heartbeats whose answers nobody takes any more.
    pub(crate) fn begin_anew(&self) {
        self.lock().begin_anew(SystemClock.now());
        self.wake.notify_one();
    }

    /// Grants that nobody wants any more, so many at most, to be released.
    pub(crate) fn unwanted(&self, most: usize) -> Vec<(GrantId, Arc<Keys>)> {
        self.lock().take_unwanted(most)
    }

    /// The heartbeats that are due, so many at most, and when the next ones are.
    pub(crate) fn due(&self, most: usize) -> (Vec<DueHeartbeat>, BootInstant) {
        self.lock().due(SystemClock.now(), most)
    }

    /// Whether the lock is still waited for that this heartbeat is about.
    pub(crate) fn is_wanted(&self, due: &DueHeartbeat) -> bool {
        self.lock().is_wanted(due)
    }

    /// A heartbeat failed.
    pub(crate) fn unanswered(&self, due: &DueHeartbeat, error: &Error) {
        let actions = self.lock().failed(SystemClock.now(), due, error);
        self.perform(actions);
    }

    /// Takes note that a short heartbeat found what is for a long one, which is due now.
    pub(crate) fn stays_due(&self, due: &DueHeartbeat) {
        self.lock().stays_due(SystemClock.now(), due);
    }

    /// Takes what a heartbeat brought.
    pub(crate) fn answered(&self, due: &DueHeartbeat, answer: &HeartbeatReply) {
        let actions = self.lock().answered(SystemClock.now(), due, answer);
        self.perform(actions);
    }

    fn perform(&self, Actions { wake, ask }: Actions<Arc<Notify>>) {
        wake.iter().for_each(|waiter| waiter.notify_one());
        if ask {
            self.wake.notify_one();
        }
    }

    fn lost_at(&self) -> MutexGuard<'_, Option<BootInstant>> {
        // Each critical section is one statement.
        self.lost_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Waiters<Arc<Keys>, Arc<Notify>>> {
        // Every event leaves the machine valid after each statement.
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
