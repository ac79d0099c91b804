//! The clock that leases are judged by.
//!
//! A lease must end on time even when the machine was suspended in between, so the system clock counts time spent
//! suspended (`CLOCK_BOOTTIME` on Linux and Android). No wall clock is ever used for a decision: setting the date
//! changes nothing.
//!
//! No clock of a virtual machine counts the time for which its hypervisor has paused it, or that passed between a snapshot and
//! its restoration: a guest that wakes believes in its leases for as long as was left then. Only a
//! [fencing token](crate::fence) protects a resource from such a holder.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use crate::sleep::SystemSleep;

/// An instant on a monotonic clock that keeps counting while the machine is suspended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// An instant later than every other, for "never".
    pub const FAR_FUTURE: Self = Self(Duration::MAX);

    /// The instant this long after the clock's origin.
    #[must_use]
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Time since the clock's origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// This much later; at most [`BootInstant::FAR_FUTURE`].
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }

    /// This much earlier; at least the clock's origin.
    #[must_use]
    pub const fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(by))
    }

    /// Time from `earlier` until this instant, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", self.0)
    }
}

/// A future that a [`Clock`] returns.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + Sync>>;

/// A source of time: the system's, or a virtual one for tests.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present instant. Never goes backwards.
    fn now(&self) -> BootInstant;

    /// Completes once [`now`](Clock::now) has reached `at`.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    fn sleep_until(&self, at: BootInstant) -> Sleep;
}

/// The system's clock. Its sleepers need a tokio runtime with timers that run: under `tokio::time::pause` timers end at
/// once and this clock does not move, so a sleeper would spin. Tests in virtual time use a [`VirtualClock`].
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    fn read() -> BootInstant {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(CLOCK);
        // Neither field of a boot-time clock is ever negative; a broken one reads as its origin.
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        BootInstant(Duration::new(seconds, nanos))
    }

    /// A sleep until this instant that may end up to 15 s too late if the machine is suspended meanwhile. It costs less than one
    /// that looks at the clock every second, for those of whom there are thousands.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    #[must_use]
    pub fn sleep_roughly_until(self, at: BootInstant) -> Sleep {
        Box::pin(SystemSleep::roughly_until(at))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> BootInstant {
        Self::read()
    }

    fn sleep_until(&self, at: BootInstant) -> Sleep {
        Box::pin(SystemSleep::until(at))
    }
}

/// A clock that stands still until it is told to [`advance`](VirtualClock::advance).
///
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
pub struct VirtualClock(std::sync::Arc<watch::Sender<BootInstant>>);

impl VirtualClock {
    /// A clock that starts one hour after its origin.
    #[must_use]
    pub fn new() -> Self {
        let origin = BootInstant(Duration::from_secs(3600));
        Self(std::sync::Arc::new(watch::Sender::new(origin)))
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

/// The end of a call's wait: one instant, decided once and passed down, never restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(BootInstant);

impl Deadline {
    /// No deadline.
    pub const NEVER: Self = Self(BootInstant::FAR_FUTURE);

    /// `wait` after `now`; [`Deadline::NEVER`] if that overflows.
    #[must_use]
    pub const fn after(now: BootInstant, wait: Duration) -> Self {
        Self(now.plus(wait))
    }

    /// At the given instant.
    #[must_use]
    pub const fn at(instant: BootInstant) -> Self {
        Self(instant)
    }

    /// The instant at which the call gives up.
    #[must_use]
    pub const fn instant(self) -> BootInstant {
        self.0
    }

    /// Whether there is no deadline.
    #[must_use]
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Time left at `now`, zero if the deadline has passed.
    #[must_use]
    pub const fn left(self, now: BootInstant) -> Duration {
        self.0.since(now)
    }

    /// Whether the deadline has passed at `now`.
    #[must_use]
    pub fn has_passed(self, now: BootInstant) -> bool {
        !self.is_never() && now >= self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_do_not_fit_mean_never() {
        let now = SystemClock.now();
        assert!(Deadline::after(now, Duration::MAX).is_never());
        assert!(!Deadline::after(now, Duration::MAX).has_passed(now));
        assert!(Deadline::after(now, Duration::ZERO).has_passed(now));
    }

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
