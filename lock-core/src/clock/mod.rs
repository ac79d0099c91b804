//! The clock that leases are judged by.
//!
//! A lease must end on time even when the machine was suspended in between, so the system clock counts time spent
//! suspended (`CLOCK_BOOTTIME` on Linux and Android). No wall clock is ever used for a decision: setting the date
//! changes nothing.
//!
//! No clock of a virtual machine counts the time for which its hypervisor has paused it, or that passed between a snapshot and
//! its restoration: a guest that wakes believes in its leases for as long as was left then. Only a
//! [fencing token](crate::fence) protects a resource from such a holder.

mod system;
mod tokio_clock;
mod virtual_clock;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use system::SystemClock;
pub use tokio_clock::TokioClock;
pub use virtual_clock::VirtualClock;

/// An instant on a monotonic clock that keeps counting while the machine is suspended. It counts nanoseconds, for 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// An instant later than every other, for "never".
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The instant this long after the clock's origin; at most [`BootInstant::FAR_FUTURE`].
    #[must_use]
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(nanoseconds(since_origin))
    }

    /// Time since the clock's origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the instant that is this much later; at most [`BootInstant::FAR_FUTURE`].
    #[must_use]
    pub const fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(by)))
    }

    /// Returns the instant that is this much earlier; at least the clock's origin.
    #[must_use]
    pub const fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanoseconds(by)))
    }

    /// Time from `earlier` until this instant, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The nanoseconds of a duration, at most as many as there are numbers for.
const fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", self.since_origin())
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

/// The end of a call's wait: one instant, decided once and passed down, never restarted.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lock_core::clock::{Clock, Deadline, SystemClock};
///
/// let now = SystemClock.now();
/// let deadline = Deadline::after(now, Duration::from_secs(2));
/// assert_eq!(deadline.left(now.plus(Duration::from_secs(1))), Duration::from_secs(1));
/// assert!(Deadline::after(now, Duration::MAX).is_never());
/// ```
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
}
