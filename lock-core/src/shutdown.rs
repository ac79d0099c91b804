//! Closing a client: nothing new begins, and what is on its way to the server is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The count of the calls under way in one client, and whether it is being closed.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    begun: AtomicBool,
    told: Notify,
    under_way: AtomicUsize,
    idle: Notify,
}

impl Shutdown {
    /// Ends every wait for a lock and refuses new ones.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Resolves when the client is closed.
    pub(crate) async fn begun(&self) {
        let told = self.told.notified();
        if !self.has_begun() {
            told.await;
        }
    }

    /// Counts something until the answer is dropped.
    pub(crate) fn track(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        UnderWay(self.clone())
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::SeqCst)
    }

    /// Resolves when nothing is under way any more; for a client that is being closed.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.under_way() == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// An acquisition, a release or a cancellation whose end the server has not confirmed yet.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Shutdown>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        // Nobody waits for it before the client is being closed: `close` begins that before it looks at the count.
        if self.0.under_way.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.has_begun() {
            self.0.idle.notify_waiters();
        }
    }
}
