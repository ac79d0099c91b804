//! The lease of a call that has a lock and is not over yet: it is renewed only as long as the call is polled.
//!
//! The guard lives inside the call's future. Renewed by itself, a lock would be held for as long as somebody keeps that future without
//! polling it. So the call asks for each renewal, and the keeper sends it.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::Arc;

use tokio::runtime::Handle;

use super::ended::passes;
use super::keeper::KeeperHandle;
use super::state::Event;
use super::{Lease, LiveGrant};

/// A lease that is renewed at its calls' request: there may be several at once. When the last of them is dropped, it is renewed by itself
/// again, if it was before.
pub(crate) struct Attended {
    keeper: Arc<KeeperHandle>,
    live: Arc<LiveGrant>,
    /// Whether this call is one of those.
    attends: bool,
}

impl Attended {
    /// Has a lease of which there is no other holder renewed at this call's request from now on. Outside of a runtime, where no timer
    /// wakes the call, it goes on to be renewed as before.
    pub(crate) fn of(lease: &Lease) -> Self {
        let (keeper, live) = (lease.keeper.clone(), lease.live.clone());
        let attends = Handle::try_current().is_ok();
        if attends {
            keeper.settle(&live, Event::Attend);
        }
        Self { keeper, live, attends }
    }

    /// Runs `work`, and has the lease renewed meanwhile.
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            ended = work => ended,
            never = self.renewed() => match never {},
        }
    }

    /// Has the lease renewed for as long as this is polled. It never ends.
    pub(crate) async fn renewed(&self) -> Infallible {
        let clock = &*self.keeper.clock;
        while self.attends
            && self.live.is_attended()
            && let Some(left) = self.live.left(clock)
        {
            let interval = self.live.options().renewal_interval();
            // A grant that was handed over is short at first, and of some leases the server keeps only a part at a time.
            let pause = interval.min(left / 2).max(interval / 8);
            passes(clock, clock.now().plus(pause)).await;
            self.keeper.ensure_running();
            self.keeper.settle(&self.live, Event::Prolong);
        }
        pending().await
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        if self.attends {
            self.keeper.settle(&self.live, Event::Unattend);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::MemoryLocks;

    #[test]
    fn outside_of_a_runtime_a_lease_goes_on_to_be_renewed_by_itself() {
        let locked = MemoryLocks::new().mutex("a").lock().now_or_never();
        let guard = locked.expect("nobody else is here").unwrap();
        let attended = Attended::of(&guard);
        assert!(guard.live.options().auto_renew);
        drop(attended);
        assert!(guard.live.options().auto_renew);
    }
}
