//! The wait for a loss.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::keeper::Keeper;
use super::{LiveGrant, LossReason};
use crate::clock::{BootInstant, Clock};

/// Resolves once, with the reason, when a lock is lost. From [`Lease::lost`](super::Lease::lost).
#[must_use = "futures do nothing unless polled"]
pub struct Lost(Option<Pin<Box<dyn Future<Output = LossReason> + Send + Sync>>>);

impl Lost {
    pub(super) fn of(live: Arc<LiveGrant>, keeper: &Arc<Keeper>) -> Self {
        Self(Some(Box::pin(watch(live, Arc::downgrade(keeper), keeper.clock.clone()))))
    }
}

/// Waits for the loss of one lease: until the keeper tells of it, or until the deadline passes on the clock here, whatever
/// has become of the keeper.
async fn watch(live: Arc<LiveGrant>, keeper: Weak<Keeper>, clock: Arc<dyn Clock>) -> LossReason {
    loop {
        let noticed = live.noticed();
        if let Some(reason) = live.loss() {
            return reason;
        }
        let watched = keeper.upgrade().filter(|_| !live.is_released());
        let Some(kept) = watched else {
            // Given back; only a release that finds nothing to give back tells of a loss after that.
            noticed.await;
            continue;
        };
        kept.is_watched_here(&live);
        drop(kept);
        tokio::select! {
            biased;
            () = noticed => {}
            () = passes(&*clock, live.deadline()) => {
                if let Some(keeper) = keeper.upgrade() {
                    keeper.look(&live);
                }
            }
        }
    }
}

/// Ends when the deadline has passed. Outside of a runtime there are no timers: the keeper's have to do.
async fn passes(clock: &dyn Clock, deadline: BootInstant) {
    let mut sleep = clock.sleep_until(deadline);
    poll_fn(|cx| if Handle::try_current().is_ok() { sleep.as_mut().poll(cx) } else { Poll::Pending }).await;
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        let Some(waiting) = &mut self.0 else { return Poll::Pending };
        let ready = waiting.as_mut().poll(cx);
        if ready.is_ready() {
            self.0 = None;
        }
        ready
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}
