//! A clock that is moved by hand.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{BootInstant, Clock, Sleep};

/// A clock that stands still until it is told to [`advance`](VirtualClock::advance).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use lock_core::clock::{Clock, VirtualClock};
///
/// let clock = VirtualClock::new();
/// let wakes = clock.sleep_until(clock.now().plus(Duration::from_secs(3600)));
/// clock.advance(Duration::from_secs(3600));
/// wakes.await; // at once
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<watch::Sender<BootInstant>>);

impl VirtualClock {
    /// A clock that starts one hour after its origin.
    #[must_use]
    pub fn new() -> Self {
        let origin = BootInstant::from_origin(Duration::from_secs(3600));
        Self(Arc::new(watch::Sender::new(origin)))
    }

    /// Moves the clock forward and wakes every sleeper whose time has come.
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|now| *now = now.plus(by));
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> BootInstant {
        *self.0.borrow()
    }

    fn sleep_until(&self, at: BootInstant) -> Sleep {
        let mut time = self.0.subscribe();
        Box::pin(async move {
            // The only error is that the clock is gone: then no time will ever pass again.
            if time.wait_for(|now| *now >= at).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_virtual_sleeper_wakes_only_when_its_time_has_come() {
        let clock = VirtualClock::new();
        let mut sleep = clock.sleep_until(clock.now().plus(Duration::from_secs(2)));
        clock.advance(Duration::from_secs(1));
        assert!(futures_util::poll!(&mut sleep).is_pending());
        clock.advance(Duration::from_secs(1));
        assert!(futures_util::poll!(&mut sleep).is_ready());
    }
}
