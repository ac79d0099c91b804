//! A waiter's stay in this client's queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::GrantId;
use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::Notify;

use super::WaitQueues;
use crate::store::keys::Keys;
use crate::wait::machine::{Enqueued, News};

/// A place in the queue; leaving it is dropping this.
#[derive(Debug)]
pub(crate) struct WaiterGuard {
    pub(super) queues: Arc<WaitQueues>,
    pub(super) keys: Arc<Keys>,
    pub(super) nonce: GrantId,
    pub(super) told: Arc<Notify>,
    pub(super) granted: AtomicBool,
}

impl WaiterGuard {
    /// The waiter has its lock: leaving the queue does not abandon it.
    pub(crate) fn ends_granted(&self) {
        self.granted.store(true, Ordering::Release);
    }

    /// The server has put this waiter into the queue.
    pub(crate) fn queued(&self, reply: Enqueued) {
        let now = SystemClock.now();
        let actions = {
            let mut waiters = self.queues.lock();
            self.queues.any.store(true, Ordering::Release);
            waiters.queued(now, self.nonce, &self.keys, reply)
        };
        self.queues.perform(actions);
        let lost_at = *self.queues.lost_at();
        if lost_at.is_some_and(|lost_at| reply.sent_at <= lost_at) {
            self.queues.ask_after(&self.keys.lock, Duration::ZERO);
        }
    }

    /// Since when the server owes an answer about this lock.
    pub(crate) fn silent_since(&self) -> BootInstant {
        // A waiter that is here is known.
        self.queues.lock().silent_since(self.nonce, &self.keys).unwrap_or_else(|| SystemClock.now())
    }

    /// The reason why the last request about this lock failed, if it did.
    pub(crate) fn refused(&self) -> Option<Arc<str>> {
        self.queues.lock().refused(&self.keys)
    }

    /// Waits for news.
    ///
    /// # Cancel safety
    /// News are not lost.
    pub(crate) async fn news(&self) -> News {
        loop {
            if let Some(news) = self.queues.lock().take_news(SystemClock.now(), self.nonce) {
                return news;
            }
            self.told.notified().await;
        }
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.queues.lock().leave(self.nonce, &self.keys, self.granted.load(Ordering::Acquire));
    }
}
