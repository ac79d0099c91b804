//! Sleeping by the system's clock, on whatever runtime that is done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use crate::clock::{BootInstant, Clock, SystemClock};

/// The time for which a sleeper trusts a timer before it looks at the clock again.
///
/// Timers do not advance while a machine is suspended, the clock does.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The longest sleep of one that may be late after a suspension. There may be thousands of them.
const LOOK_SELDOM: Duration = Duration::from_secs(15);

/// A sleep until an instant of the system's clock. It may begin on one runtime and go on upon another.
pub(crate) struct SystemSleep {
    until: BootInstant,
    look_again: Duration,
    /// The timer, and the runtime that drives it: one of a runtime that has ended must not be polled any more.
    timer: Option<(Id, Pin<Box<tokio::time::Sleep>>)>,
}

impl SystemSleep {
    pub(crate) const fn until(until: BootInstant) -> Self {
        Self { until, look_again: LOOK_AGAIN, timer: None }
    }

    pub(crate) const fn roughly_until(until: BootInstant) -> Self {
        Self { until, look_again: LOOK_SELDOM, timer: None }
    }
}

impl Future for SystemSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { until, look_again, timer } = &mut *self;
        if *until == BootInstant::FAR_FUTURE {
            return Poll::Pending;
        }
        let look = || Some(until.since(SystemClock.now()).min(*look_again)).filter(|left| !left.is_zero());
        let Some(left) = look() else { return Poll::Ready(()) };
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        let timer = match timer {
            Some((of, timer)) if here.is_none_or(|here| here == *of) => timer,
            other => {
                // Outside of a runtime this panics, as every timer does.
                let timer = Box::pin(tokio::time::sleep(left));
                &mut other.insert((Handle::current().id(), timer)).1
            }
        };
        loop {
            ready!(timer.as_mut().poll(cx));
            let Some(left) = look() else { return Poll::Ready(()) };
            timer.as_mut().reset(Instant::now() + left);
        }
    }
}
