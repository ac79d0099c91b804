//! A waiter's stay in this client's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_core::clock::{BootInstant, Clock, SystemClock};

use super::waiter::{LocalWaiter, News};
use super::{LONGEST_PERIOD, Pause, WaitQueues};
use crate::store::keys::Keys;

/// A place in the queue; leaving it is dropping this.
#[derive(Debug)]
pub(crate) struct WaiterGuard {
    pub(super) queues: Arc<WaitQueues>,
    pub(super) keys: Arc<Keys>,
    pub(super) waiter: Arc<LocalWaiter>,
    pub(super) granted: AtomicBool,
}

/// The reply to a waiter that the server put into the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enqueued {
    /// The instant at which the request was sent.
    pub(crate) sent_at: BootInstant,
    pub(crate) ticket: u64,
    /// Whether the server knew that this client waits.
    pub(crate) known: bool,
    pub(crate) pause: Pause,
    /// The last token that was given.
    pub(crate) last_token: u64,
}

impl WaiterGuard {
    /// The waiter has its lock: leaving the queue does not abandon it.
    pub(crate) fn is_over(&self) {
        self.granted.store(true, Ordering::Release);
    }

    /// The server has put this waiter into the queue.
    pub(crate) fn queued(&self, Enqueued { sent_at, ticket, known, pause, last_token }: Enqueued) {
        let now = SystemClock.now();
        if pause == Pause::None {
            self.queues.go_on(self.keys.clone());
        }
        self.waiter.queued(sent_at, ticket, last_token);
        let mut state = self.queues.lock();
        self.queues.any.store(true, Ordering::Release);
        let (queue, agenda) = state.queue(&self.keys, now);
        queue.answered_at = now;
        queue.refused = None;
        queue.waiting.insert((ticket, self.waiter.nonce), self.waiter.clone());
        if !known {
            // The server had forgotten this client, and with it whoever else had asked before.
            let others = queue.waiting.values().filter(|waiter| waiter.nonce != self.waiter.nonce);
            others.filter(|waiter| waiter.asked_at() <= sent_at).for_each(|waiter| waiter.ask_again());
        }
        if queue.ask_within(agenda, now, pause) {
            self.queues.wake.notify_one();
        }
    }

    /// The ticket of the place that this waiter had, if any.
    pub(crate) fn ticket(&self) -> Option<u64> {
        self.waiter.ticket()
    }

    /// Since when the server owes an answer about this lock. Not from its last one: until the next heartbeat nobody asks.
    pub(crate) fn silent_since(&self) -> BootInstant {
        let queue = self.queues.lock().queues.get(&self.keys.lock).map(|queue| queue.answered_at);
        queue.unwrap_or_else(|| self.waiter.asked_at()).plus(LONGEST_PERIOD)
    }

    /// The reason why the last request about this lock failed, if it did.
    pub(crate) fn refused(&self) -> Option<Arc<str>> {
        self.queues.lock().queues.get(&self.keys.lock)?.refused.clone()
    }

    /// Waits for news.
    ///
    /// # Cancel safety
    /// News are not lost.
    pub(crate) async fn news(&self) -> News {
        self.waiter.news().await
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut state = self.queues.lock();
        let gave_up = (!self.granted.load(Ordering::Acquire)).then(|| self.keys.clone());
        state.registry.deregister(self.waiter.nonce, gave_up);
        if let Some(ticket) = self.waiter.ticket() {
            state.leave(&self.keys.lock, ticket, self.waiter.nonce);
        }
    }
}
