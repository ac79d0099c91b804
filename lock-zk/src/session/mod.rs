//! One session, shared by all locks of a client: until when it may be believed in, and what its link is doing.
//!
//! [`lease`] is the rule by which a session is believed in, [`manager`] the one task that keeps a session alive and
//! replaces one that has ended, [`poll`] how often its waiters look around.

mod lease;
mod manager;
mod poll;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::client::Connection;
use lease::SessionLease;
use poll::Pollers;

pub(crate) use manager::{Refusal, SessionOptions, Sessions};
pub(crate) use poll::Poller;

/// How many bytes of paths a session watches at once: beyond 128 KiB the client crate cannot restore the watches after a
/// reconnection, and loses the session. About 1,500 locks with short names.
pub(crate) const WATCHABLE: usize = 120 * 1024;

/// The pause between looks of a waiter that may not watch, unless too many wait.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What a client's session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionState {
    /// A server answers.
    Connected,
    /// No server is reached. What is held stays held while [`is_held`](lock_core::Lease::is_held) says so; nothing new
    /// is granted.
    Suspended,
    /// There is no session: what it held is lost, and a new one is being opened.
    Lost,
}

/// One session, from its connection to its end.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) connection: Arc<dyn Connection>,
    lease: Mutex<SessionLease>,
    suspended: AtomicBool,
    over: watch::Sender<bool>,
    /// Bytes of paths that may be watched yet.
    watchable: Semaphore,
    pub(crate) pollers: Pollers,
    /// How much longer a path is at the servers than here.
    chroot: usize,
}

impl Session {
    fn new(connection: Arc<dyn Connection>, asked_at: BootInstant, tick: Duration, chroot: usize) -> Arc<Self> {
        let lease = SessionLease::new(asked_at, connection.timeout(), tick);
        Arc::new(Self {
            connection,
            lease: Mutex::new(lease),
            suspended: AtomicBool::new(false),
            over: watch::Sender::new(false),
            watchable: Semaphore::new(WATCHABLE),
            pollers: Pollers::default(),
            chroot,
        })
    }

    /// How long the session may be believed in from `now` on, if it does not move on; `None` once it is over.
    pub(crate) fn left(&self, now: BootInstant) -> Option<Duration> {
        let mut lease = self.lease();
        (!lease.is_over(now)).then(|| lease.end().since(now))
    }

    /// How long from `start` on, which has passed, the session may be believed in; `None` once it is over.
    pub(crate) fn lasts_from(&self, start: BootInstant) -> Option<Duration> {
        let mut lease = self.lease();
        (!lease.is_over(SystemClock.now())).then(|| lease.end().since(start))
    }

    /// Whether it is over: expired, closed, or without an answer for too long.
    pub(crate) fn is_over(&self) -> bool {
        self.lease().is_over(SystemClock.now())
    }

    /// Has it be over by our clock.
    #[cfg(test)]
    pub(crate) fn give_up(&self) {
        self.lease().give_up();
    }

    /// Whether a server is reached at present.
    pub(crate) fn is_connected(&self) -> bool {
        !self.suspended.load(Ordering::Acquire)
    }

    /// Until when everything that was asked of it has been answered, of the time up to `now`.
    fn answered_until(&self, now: BootInstant) -> BootInstant {
        self.connection.unanswered_since().map_or(now, |since| since.min(now))
    }

    /// The room that a watch of this path takes, to be kept as long as the watch; `None` if there is none for a while, and then
    /// the caller looks again instead.
    pub(crate) async fn watch_budget(&self, path: &str, poller: &Poller<'_>) -> Option<SemaphorePermit<'_>> {
        let bytes = u32::try_from(path.len() + self.chroot).ok()?;
        // It is never closed.
        tokio::time::timeout(poller.pause(POLL_INTERVAL), self.watchable.acquire_many(bytes)).await.ok()?.ok()
    }

    /// Resolves when the session is over and its holders have been told.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    fn lease(&self) -> MutexGuard<'_, SessionLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
