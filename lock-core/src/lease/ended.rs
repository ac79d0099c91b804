//! The wait for the end of a hold, whatever ends it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::LiveGrant;
use super::keeper::Keeper;
use super::one_shot::OneShot;
use crate::clock::{BootInstant, Clock};
use crate::loss::LossReason;

/// The end of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// The holder has released the lock, left it, or dropped its guard. Whether it was held to the end is what `release` tells.
    Released,
    /// The lock was lost.
    Lost(LossReason),
}

/// Resolves once, when a lock is lost or released. From [`Lease::ended`](super::Lease::ended).
#[must_use = "futures do nothing unless polled"]
pub struct Ended(OneShot<Ending>);

impl Ended {
    pub(super) fn of(live: Arc<LiveGrant>, keeper: &Arc<Keeper>) -> Self {
        let (keeper, clock) = (Arc::downgrade(keeper), keeper.clock.clone());
        Self(OneShot::new("Ended", async move { end_of(&live, &keeper, &*clock).await }))
    }
}

/// Waits for the end of one lease: until the keeper tells of it, or until the deadline passes on the clock here, whatever has
/// become of the keeper.
pub(super) async fn end_of(live: &Arc<LiveGrant>, keeper: &Weak<Keeper>, clock: &dyn Clock) -> Ending {
    loop {
        let noticed = live.noticed();
        if let Some(reason) = live.loss() {
            return Ending::Lost(reason);
        }
        if live.is_released() {
            return Ending::Released;
        }
        let Some(kept) = keeper.upgrade() else {
            // The client went with every guard, and a guard that goes tells.
            noticed.await;
            continue;
        };
        kept.mark_watched_here(live);
        drop(kept);
        tokio::select! {
            biased;
            () = noticed => {}
            () = passes(clock, live.deadline()) => {
                if let Some(keeper) = keeper.upgrade() {
                    keeper.look(live);
                }
            }
        }
    }
}

/// Ends when this instant has passed. Outside of a runtime there are no timers: the keeper's have to do.
pub(super) async fn passes(clock: &dyn Clock, instant: BootInstant) {
    let mut sleep = clock.sleep_until(instant);
    poll_fn(|cx| if Handle::try_current().is_ok() { sleep.as_mut().poll(cx) } else { Poll::Pending }).await;
}

impl Future for Ended {
    type Output = Ending;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ending> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
