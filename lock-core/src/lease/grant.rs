//! The lease of one grant, shared between its guard and the keeper.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::state::{Actions, Event, LeaseState};
use crate::clock::{BootInstant, Clock};
use crate::driver::{Attempt, Grant};
use crate::loss::LossReason;
use crate::options::LeaseOptions;
use crate::sync::locked;
use crate::token::FencingToken;

/// State machine, identity and end signal of one grant.
#[derive(Debug)]
pub(crate) struct LiveGrant {
    pub(crate) attempt: Arc<Attempt>,
    /// The instant at which the keeper looks at this lease next; only the keeper's registry uses it, under its own lock.
    pub(super) scheduled: Mutex<Option<BootInstant>>,
    state: Mutex<LeaseState>,
    ended: Notify,
    /// Whether it is unknown what this grant still allows: then it is held by nobody's word.
    doubtful: AtomicBool,
    /// The runtime on which the keeper may go on when the one that carries it ends.
    runtime: Mutex<Option<Handle>>,
}

impl LiveGrant {
    pub(crate) fn new(
        attempt: Arc<Attempt>,
        grant: &Grant,
        now: BootInstant,
        mut options: LeaseOptions,
        granularity: Duration,
    ) -> Arc<Self> {
        options.renew_every = Some(spread(&attempt, options.renewal_interval()));
        attempt.set_token(grant.token);
        Arc::new(Self {
            state: Mutex::new(LeaseState::new(grant, now, options, granularity)),
            attempt,
            scheduled: Mutex::new(None),
            ended: Notify::new(),
            doubtful: AtomicBool::new(false),
            runtime: Mutex::new(Handle::try_current().ok()),
        })
    }

    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.attempt.token()
    }

    /// Takes an event. The clock is read while the state is locked: an answer that is taken after somebody saw the
    /// deadline pass sees it pass too.
    pub(super) fn step(&self, clock: &dyn Clock, event: Event) -> Actions {
        let mut state = locked(&self.state);
        state.step(clock.now(), event)
    }

    /// Finds a deadline that has passed.
    pub(super) fn look(&self, clock: &dyn Clock) -> Actions {
        let mut state = locked(&self.state);
        let now = clock.now();
        if state.is_held(now) { Actions::default() } else { state.step(now, Event::Tick) }
    }

    /// Wakes those who wait for the end that a step has found.
    pub(super) fn tell_end(&self) {
        self.ended.notify_waiters();
    }

    pub(crate) fn is_held(&self, clock: &dyn Clock) -> bool {
        let state = locked(&self.state);
        state.is_held(clock.now()) && !self.is_doubtful()
    }

    /// Whether the lease runs, whatever the grant still allows.
    pub(crate) fn is_kept(&self, clock: &dyn Clock) -> bool {
        let state = locked(&self.state);
        state.is_held(clock.now())
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Acquire)
    }

    pub(crate) fn set_doubtful(&self, doubtful: bool) {
        self.doubtful.store(doubtful, Ordering::Release);
    }

    pub(super) fn remaining(&self, clock: &dyn Clock) -> Duration {
        self.left(clock).filter(|_| !self.is_doubtful()).unwrap_or_default()
    }

    /// Returns for how long the lock was held until now, or until its lease ended.
    pub(super) fn held_for(&self, clock: &dyn Clock) -> Duration {
        locked(&self.state).held_for(clock.now())
    }

    /// Returns what is left of the lease, whatever the grant still allows; `None` if it is released or lost.
    pub(super) fn left(&self, clock: &dyn Clock) -> Option<Duration> {
        let state = locked(&self.state);
        let now = clock.now();
        state.is_held(now).then(|| state.deadline().since(now))
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        locked(&self.state).deadline()
    }

    pub(super) fn may_last_until(&self) -> BootInstant {
        locked(&self.state).may_last_until()
    }

    /// The holder is about to ask the server to keep the grant for `ttl`, at the instant that is returned.
    pub(super) fn asks(&self, clock: &dyn Clock, ttl: Duration) -> BootInstant {
        let mut state = locked(&self.state);
        let now = clock.now();
        state.asks(now, ttl);
        now
    }

    pub(super) fn wake_at(&self) -> Option<BootInstant> {
        locked(&self.state).wake_at()
    }

    /// Whether the grant is a whole one, rather than a short one that is to be claimed.
    pub(super) fn is_claimed(&self) -> bool {
        locked(&self.state).is_claimed()
    }

    /// Whether its renewals are asked for by calls that are not over yet.
    pub(super) fn is_attended(&self) -> bool {
        locked(&self.state).is_attended()
    }

    /// The time of a lease that is left at least, as long as every renewal comes in time.
    pub(super) fn least_left(&self) -> Duration {
        locked(&self.state).least_left()
    }

    /// Returns the strongest options of all who hold by this grant.
    pub(crate) fn options(&self) -> LeaseOptions {
        locked(&self.state).options()
    }

    pub(crate) fn is_released(&self) -> bool {
        locked(&self.state).is_released()
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        locked(&self.state).loss().cloned()
    }

    /// Resolves at the next telling of an end after this call.
    pub(super) fn noticed(&self) -> Notified<'_> {
        self.ended.notified()
    }

    /// The runtime on which the holder waits or, as long as it has not waited, has taken the lock.
    pub(super) fn runtime(&self) -> Option<Handle> {
        locked(&self.runtime).clone()
    }

    /// Remembers the present runtime as the holder's.
    pub(super) fn mark_watched_here(&self) {
        if let Ok(here) = Handle::try_current() {
            *locked(&self.runtime) = Some(here);
        }
    }
}

/// Up to a tenth less than the interval, different for every grant, so that leases that began together do not renew
/// together for ever.
fn spread(attempt: &Attempt, interval: Duration) -> Duration {
    interval - interval / 10 * u32::from(attempt.id.as_bytes()[0]) / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Kind;
    use crate::owner::{GrantId, Owner};

    #[test]
    fn leases_that_began_together_are_renewed_up_to_a_tenth_sooner() {
        let interval = Duration::from_secs(10);
        for (byte, spread_to) in [(0, 10_000), (51, 9_800), (102, 9_600), (255, 9_000)] {
            let mut attempt = Attempt::new("a".into(), Kind::Mutex, Owner::new(), interval).unwrap();
            attempt.id = GrantId::from_bytes([byte; 16]);
            assert_eq!(spread(&attempt, interval), Duration::from_millis(spread_to), "{byte}");
        }
    }
}
