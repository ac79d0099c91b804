//! The wait for a loss.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::LiveGrant;
use super::ended::{Ending, end_of};
use super::keeper::Keeper;
use super::one_shot::OneShot;
use crate::loss::LossReason;

/// Resolves once, with the reason, when a lock is lost. From [`Lease::lost`](super::Lease::lost).
#[must_use = "futures do nothing unless polled"]
pub struct Lost(OneShot<LossReason>);

impl Lost {
    pub(super) fn of(live: Arc<LiveGrant>, keeper: &Arc<Keeper>) -> Self {
        let (keeper, clock) = (Arc::downgrade(keeper), keeper.clock.clone());
        Self(OneShot::new("Lost", async move {
            match end_of(&live, &keeper, &*clock).await {
                Ending::Lost(reason) => reason,
                Ending::Released => found_by_the_release(&live).await,
            }
        }))
    }
}

/// Released; only a release that finds nothing to release tells of a loss after that.
async fn found_by_the_release(live: &LiveGrant) -> LossReason {
    loop {
        let noticed = live.noticed();
        if let Some(reason) = live.loss() {
            return reason;
        }
        noticed.await;
    }
}

impl Future for Lost {
    type Output = LossReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<LossReason> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
