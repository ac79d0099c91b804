//! The bound on every request of a backend.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use crate::clock::{BootInstant, Clock};
use crate::error::{Error, Phase};

/// The time that a request may take beyond its own. A backend keeps the operation timeout by itself, so that only one
/// that hangs is cut.
pub(super) const SLACK: Duration = Duration::from_millis(500);

/// Runs a request of the backend for at most one operation timeout and some slack.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when the time is over.
///
/// # Cancel safety
/// Dropping it drops the request.
pub(crate) async fn bounded<T>(
    clock: &dyn Clock,
    op_timeout: Duration,
    phase: Phase,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    until(clock, BootInstant::from_origin(Duration::ZERO), op_timeout, None, phase, request).await
}

/// Runs a request until one operation timeout and some slack after `end`, or after now if that is later; with a limit, until that.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when the time is over.
///
/// # Cancel safety
/// Dropping it drops the request.
pub(crate) async fn until<T>(
    clock: &dyn Clock,
    end: BootInstant,
    op_timeout: Duration,
    limit: Option<BootInstant>,
    phase: Phase,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    cut(clock, |now| limit.unwrap_or_else(|| end.max(now).plus(op_timeout).plus(SLACK)), phase, request).await
}

/// Runs one of several requests that have one end together: one operation timeout and some slack after `end`.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate) when the time is over.
///
/// # Cancel safety
/// Dropping it drops the request.
pub(crate) async fn by<T>(
    clock: &dyn Clock,
    end: BootInstant,
    op_timeout: Duration,
    phase: Phase,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    cut(clock, |_| end.plus(op_timeout).plus(SLACK), phase, request).await
}

async fn cut<T>(
    clock: &dyn Clock,
    end: impl Fn(BootInstant) -> BootInstant,
    phase: Phase,
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = before(clock, end, request).await;
    let what = "the backend did not end the request within the operation timeout";
    answer.unwrap_or_else(|| Err(Error::indeterminate(phase, what)))
}

/// Runs a request until the instant that `end` tells from the present one; `None` if it has not ended by then. The clock is
/// asked only if the request does not end at once, and no timer is set for an end that never comes.
///
/// # Cancel safety
/// Dropping it drops the request.
pub async fn before<T>(
    clock: &dyn Clock,
    end: impl Fn(BootInstant) -> BootInstant,
    request: impl Future<Output = T>,
) -> Option<T> {
    let mut request = pin!(request);
    let mut over = None;
    poll_fn(|cx| {
        if let Poll::Ready(answer) = request.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        let over = over.get_or_insert_with(|| match end(clock.now()) {
            BootInstant::FAR_FUTURE => None,
            end => Some(clock.sleep_until(end)),
        });
        over.as_mut().map_or(Poll::Pending, |over| over.as_mut().poll(cx).map(|()| None))
    })
    .await
}

/// Takes a panic of the backend for an answer that never came: in the background it must not end what is done for others.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Indeterminate`](crate::ErrorKind::Indeterminate).
pub(crate) async fn caught<T>(phase: Phase, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let outcome = AssertUnwindSafe(request).catch_unwind().await;
    outcome.unwrap_or_else(|_| Err(Error::indeterminate(phase, "the backend panicked")))
}

/// Asks the backend something for which it needs no server; no, none or nothing if it panics. These questions are asked in the
/// background, and while guards are dropped.
pub(crate) fn asked<T: Default>(question: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(question)).unwrap_or_default()
}
