//! The way to the servers, as the scheduler and the task that sends what waits have it in common.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use zookeeper_client::{Client, Error};

use super::Response;
use super::listings::Listings;
use super::pending::{PendingRequests, Tracked};
use super::waiting::Waiting;

/// The number of requests that may be under way without having waited, and of as many that did.
pub(super) const AT_ONCE: usize = 128;

/// The things that the scheduler and the task of its backlog have in common.
pub(super) struct Dispatch {
    pub(super) way: Mutex<Way>,
    pub(super) pending: Arc<PendingRequests>,
    /// The number of requests under way that did not wait.
    pub(super) under_way: Arc<AtomicUsize>,
    /// The number of those that did.
    pub(super) waited: AtomicUsize,
    /// Told of every request that enters the backlog.
    pub(super) entered: Notify,
    pub(super) stamp: Stamp,
    pub(super) listings: Arc<Listings>,
}

/// The client, and what waits for it.
pub(super) struct Way {
    /// None once it is closed.
    pub(super) client: Option<Arc<Client>>,
    /// The requests that wait, in the order of their calls.
    pub(super) waiting: VecDeque<Waiting>,
}

/// The directory that is changed by every transaction which makes places, for the number of that.
pub(super) struct Stamp {
    pub(super) path: Arc<str>,
    /// Whether it could not be changed, and no directory was made since.
    is_refused: AtomicBool,
}

impl Stamp {
    /// At this path, which has not been refused yet.
    pub(super) fn of(path: String) -> Self {
        Self { path: path.into(), is_refused: AtomicBool::new(false) }
    }

    pub(super) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Release);
    }

    /// Notes that a directory was made: it may be there now.
    pub(super) fn try_again(&self) {
        self.is_refused.store(false, Ordering::Release);
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }
}

impl Dispatch {
    /// A panic elsewhere is not passed on: there is a client, or none, and what waits is whole.
    pub(super) fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the crate's client, and tells whatever waits or is under way that the session is over.
    pub(super) fn close(&self) {
        let (client, waiting) = {
            let mut way = self.way();
            (way.client.take(), std::mem::take(&mut way.waiting))
        };
        self.pending.close();
        // Outside of the lock: whoever waits is told by this.
        drop((client, waiting));
    }

    /// Whether nothing is under way but what goes before all others, so that a request has nothing to go together with.
    pub(super) fn is_idle(&self, way: &Way) -> bool {
        way.waiting.is_empty()
            && self.under_way.load(Ordering::Acquire) == 0
            && self.waited.load(Ordering::Acquire) == 0
    }

    /// Asks the crate. The answer is a later one's turn.
    pub(super) fn ask<T, F>(&self, turn: Option<InFlight>, request: F) -> Response<'static, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(self.pending.track(Box::pin(async move {
            let answer = request.await;
            drop(turn);
            Ok(answer?)
        })))
    }

    /// Asks the crate at once.
    pub(super) fn track<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Tracked<T> {
        self.pending.track(Box::pin(async move { Ok(request.await?) }))
    }

    /// The number of requests that may follow from the backlog.
    pub(super) fn free(&self) -> usize {
        AT_ONCE.saturating_sub(self.waited.load(Ordering::Acquire))
    }

    /// Whether the first of those that wait may go.
    pub(super) fn can_send(&self) -> bool {
        let way = self.way();
        way.waiting.front().is_some_and(|first| first.turns() <= self.free() || !first.is_wanted())
    }
}

/// One of the requests that may be under way, until it is dropped.
pub(super) struct InFlight(Arc<AtomicUsize>);

impl InFlight {
    pub(super) fn new(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::AcqRel);
        Self(taken.clone())
    }

    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let turn = Self::new(taken);
        (taken.load(Ordering::Acquire) <= AT_ONCE).then_some(turn)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
