//! A clock that follows the runtime's.

use tokio::time::Instant;

use super::{BootInstant, Clock, Sleep};

/// The clock of tokio's timers, for tests with a paused runtime: it stands still and moves with `tokio::time::pause` and
/// `tokio::time::advance`. Everything that uses it belongs on the one runtime on which it was made.
///
/// Not for production: tokio's clock stands still while the machine is suspended, and a lease must not.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), lock_core::Error> {
/// use std::time::Duration;
/// use lock_core::LossReason;
/// use lock_core::clock::TokioClock;
/// use lock_core::memory::MemoryStore;
///
/// let locks = MemoryStore::with_clock(TokioClock::new()).connect();
/// let guard = locks.mutex("report").lock().await?;
/// tokio::time::sleep(Duration::from_secs(3600)).await; // takes no time; the lease is renewed meanwhile
/// assert!(guard.is_held());
///
/// tokio::time::advance(Duration::from_secs(11)).await; // as if the process had stood still for 11 s
/// assert!(!guard.is_held());
/// assert_eq!(guard.lost().await, LossReason::Expired);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_origin(Instant::now().saturating_duration_since(self.origin))
    }

    fn sleep_until(&self, at: BootInstant) -> Sleep {
        // A timer that is never due would be the next one, which a paused runtime goes on to.
        let until = Some(at).filter(|at| *at != BootInstant::FAR_FUTURE);
        let until = until.and_then(|at| self.origin.checked_add(at.since_origin()));
        // The timer is made where it is first polled: outside of a runtime there is none.
        Box::pin(async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::loss::LossReason;
    use crate::memory::MemoryStore;
    use crate::options::LeaseOptions;

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_lease_expires_when_the_paused_time_is_advanced() {
        let locks = MemoryStore::with_clock(TokioClock::new()).connect();
        let mutex = locks.mutex("a").with_lease(LeaseOptions::new(TTL).with_auto_renew(false));
        let guard = mutex.lock().await.unwrap();
        tokio::time::advance(TTL / 2).await;
        assert!(guard.is_held() && guard.remaining() <= TTL / 2);
        tokio::time::advance(TTL / 2).await;
        assert!(!guard.is_held());
        assert_eq!(guard.lost().await, LossReason::Expired);
        assert!(mutex.try_lock().await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_deadline_in_paused_time() {
        let (clock, wait) = (TokioClock::new(), Duration::from_secs(3600));
        let locks = MemoryStore::with_clock(clock).connect();
        let guard = locks.mutex("a").lock().await.unwrap();
        assert!(locks.mutex("a").try_lock_for(wait).await.unwrap().is_none());
        assert!(clock.now().since_origin() >= wait && guard.is_held(), "renewed for an hour");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_woken_at_the_end_of_time() {
        let sleep = TokioClock::new().sleep_until(BootInstant::FAR_FUTURE);
        let all_of_time = BootInstant::FAR_FUTURE.since_origin() * 2;
        assert!(tokio::time::timeout(all_of_time, sleep).await.is_err());
    }
}
