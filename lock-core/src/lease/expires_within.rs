//! The early warning before a lease ends.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use super::LiveGrant;
use super::ended::{end_of, passes};
use super::keeper::Keeper;
use super::one_shot::OneShot;
use crate::clock::Clock;

/// The time between two looks at a grant whose first renewal, which makes it a whole one, is not answered yet.
const UNCLAIMED: Duration = Duration::from_millis(10);

/// Resolves once, when no more than a given time of a lease is left, or the lock is lost or released. From
/// [`Lease::expires_within`](super::Lease::expires_within).
#[must_use = "futures do nothing unless polled"]
pub struct ExpiresWithin(OneShot<()>);

impl ExpiresWithin {
    pub(super) fn of(live: Arc<LiveGrant>, keeper: &Arc<Keeper>, time: Duration) -> Self {
        let (keeper, clock) = (Arc::downgrade(keeper), keeper.clock.clone());
        Self(OneShot::new("ExpiresWithin", async move { warn(&live, &keeper, &*clock, time).await }))
    }
}

async fn warn(live: &Arc<LiveGrant>, keeper: &Weak<Keeper>, clock: &dyn Clock, time: Duration) {
    let mut ended = pin!(end_of(live, keeper, clock));
    loop {
        let (now, warning) = (clock.now(), live.deadline().minus(time));
        let next = if now < warning {
            warning
        } else if live.is_claimed() || !live.is_held(clock) {
            return;
        } else {
            // A hand-over grants a short time, and the rest is asked for at once.
            now.plus(UNCLAIMED)
        };
        tokio::select! {
            biased;
            _ = &mut ended => return,
            // It may have been renewed meanwhile.
            () = passes(clock, next) => {}
        }
    }
}

impl Future for ExpiresWithin {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl fmt::Debug for ExpiresWithin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;
    use crate::clock::VirtualClock;
    use crate::driver::{Attempt, Grant, Kind};
    use crate::options::LeaseOptions;
    use crate::owner::Owner;

    const TTL: Duration = Duration::from_secs(30);

    fn lease(grant: &Grant) -> Arc<LiveGrant> {
        let attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), TTL).unwrap();
        LiveGrant::new(Arc::new(attempt), grant, grant.sent_at, LeaseOptions::new(TTL), Duration::ZERO)
    }

    #[tokio::test]
    async fn a_warning_comes_at_its_instant_and_not_before() {
        let clock = VirtualClock::new();
        let live = lease(&Grant::new(None, clock.now(), TTL));
        let keeper = Weak::new();
        let mut warning = Box::pin(warn(&live, &keeper, &clock, TTL / 2));
        let until = live.deadline().minus(TTL / 2).since(clock.now());
        clock.advance(until - Duration::from_nanos(1));
        assert_eq!(futures_util::poll!(&mut warning), Poll::Pending);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(futures_util::poll!(&mut warning), Poll::Ready(()));
    }

    #[tokio::test]
    async fn a_short_grant_that_is_to_be_claimed_is_no_reason_to_warn_until_it_is_over() {
        let clock = VirtualClock::new();
        let live = lease(&Grant::new(None, clock.now(), TTL / 10).with_claim());
        let keeper = Weak::new();
        let mut warning = Box::pin(warn(&live, &keeper, &clock, TTL / 2));
        assert_eq!(futures_util::poll!(&mut warning), Poll::Pending);
        clock.advance(TTL / 10);
        assert_eq!(futures_util::poll!(&mut warning), Poll::Ready(()));
    }
}
