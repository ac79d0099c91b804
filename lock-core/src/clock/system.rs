//! The system's clock, and sleeping by it on whatever runtime that is done.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::{BootInstant, Clock, Sleep};

/// The time for which a sleeper trusts a timer before it looks at the clock again.
///
/// Timers do not advance while a machine is suspended, the clock does.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest sleep of one that may be late after a suspension. There may be thousands of them.
const LOOK_SELDOM: Duration = Duration::from_secs(15);

/// The system's clock. Its sleepers need a tokio runtime with timers that run: under `tokio::time::pause` timers end at
/// once and this clock does not move, so a sleeper would spin. Tests in paused time use a
/// [`TokioClock`](super::TokioClock), others in virtual time a [`VirtualClock`](super::VirtualClock).
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
        BootInstant::from_origin(Duration::new(seconds, nanos))
    }

    /// A sleep until this instant that may end up to 15 s too late if the machine is suspended meanwhile. It costs less than one
    /// that looks at the clock every second, for those of whom there are thousands.
    ///
    /// # Cancel safety
    /// Dropping the future has no effect.
    #[must_use]
    pub fn sleep_roughly_until(self, at: BootInstant) -> Sleep {
        sleep(at, LOOK_SELDOM)
    }
}

impl Clock for SystemClock {
    fn now(&self) -> BootInstant {
        Self::read()
    }

    fn sleep_until(&self, at: BootInstant) -> Sleep {
        sleep(at, LOOK_AGAIN)
    }
}

/// Sleeps until an instant of the system's clock. It may begin on one runtime and go on upon another. One box has everything: every
/// request with a bound makes one.
fn sleep(until: BootInstant, look_again: Duration) -> Sleep {
    Box::pin(async move {
        if until == BootInstant::FAR_FUTURE {
            return std::future::pending().await;
        }
        let look = || Some(until.since(SystemClock::read()).min(look_again)).filter(|left| !left.is_zero());
        // The timer, and the runtime that drives it: one of a runtime that has ended must not be polled any more.
        let (mut timer, mut driven_by) = (pin!(None::<tokio::time::Sleep>), None::<Id>);
        poll_fn(|cx| {
            let Some(mut left) = look() else { return Poll::Ready(()) };
            if let Some(before) = driven_by
                && Handle::try_current().is_ok_and(|here| here.id() != before)
            {
                timer.set(None);
            }
            loop {
                let Some(mut running) = timer.as_mut().as_pin_mut() else {
                    // Outside of a runtime this panics, as every timer does.
                    driven_by = Some(Handle::current().id());
                    timer.set(Some(tokio::time::sleep(left)));
                    continue;
                };
                ready!(running.as_mut().poll(cx));
                let Some(more) = look() else { return Poll::Ready(()) };
                left = more;
                running.reset(Instant::now() + left);
            }
        })
        .await;
    })
}
