//! The waiting that backends share: the poll, for those whose server can neither queue nor push, the pauses between tries, and the bound of
//! a request by its operation timeout.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::clock::{BootInstant, Clock, Deadline};
pub use crate::driver::bound::before;
use crate::driver::bound::{SLACK, bounded};
use crate::driver::{Attempt, Grant};
use crate::error::{Error, ErrorKind, Phase};

/// The first pause between two tries.
pub const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two tries, before jitter.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(25);

/// The end of a wait of which an earlier try had no answer.
const IN_DOUBT: &str = "the wait ended, and an earlier request without an answer may have taken the lock";

/// A timer that ends later than this was one of a process that stood still.
const LATE: Duration = Duration::from_millis(500);

/// An endless sequence of growing, jittered pauses up to `cap` (jitter comes on top, at most once more the pause).
pub fn pauses(first: Duration, cap: Duration) -> impl Iterator<Item = Duration> + Send + use<> {
    ExponentialBuilder::default().with_min_delay(first).with_max_delay(cap).with_jitter().without_max_times().build()
}

/// Whether this process, or its runtime, stood still before a sleep came to its end, which was `due` earlier than `now`. Nobody could have
/// answered it meanwhile, so a patience that is over then begins anew. A standstill that ends within half a second after `due` is not seen.
#[must_use]
pub fn stood_still(due: BootInstant, now: BootInstant) -> bool {
    now.since(due) > LATE
}

/// Tries again and again, with growing, jittered pauses, until the lock is granted or the deadline passes.
///
/// The deadline is one instant for the whole call. While the server does not answer, the wait goes on for the
/// attempt's patience; every answer starts the patience anew, and so does a standstill of this process. A try without an answer is
/// repeated with the same attempt, which the server may have granted the lock already. A try that hangs is dropped half a second after
/// its operation timeout.
///
/// # Errors
/// The try's own error, except [`ErrorKind::Unavailable`] and [`ErrorKind::Indeterminate`] within the patience. Once a try's outcome is
/// unknown, [`ErrorKind::Indeterminate`] in the place of every later definite one.
///
/// # Cancel safety
/// Dropping it drops the try.
pub async fn poll<F, T>(
    clock: &dyn Clock,
    attempt: &Attempt,
    deadline: Deadline,
    mut attempt_once: F,
) -> Result<Option<Grant>, Error>
where
    F: FnMut() -> T,
    T: Future<Output = Result<Option<Grant>, Error>>,
{
    let mut now = clock.now();
    let (mut answered, mut is_unknown) = (now, false);
    let mut pauses = pauses(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        let due = now.plus(attempt.op_timeout).plus(SLACK);
        let outcome = bounded(clock, attempt.op_timeout, Phase::Wait, attempt_once()).await;
        now = clock.now();
        if stood_still(due, now) {
            answered = now;
        }
        match outcome {
            Ok(Some(grant)) => return Ok(Some(grant)),
            Ok(None) => answered = now,
            Err(error) => {
                let passes = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate);
                if !passes || deadline.has_passed(now) || now.since(answered) >= attempt.patience {
                    return Err(if is_unknown { error.in_doubt(IN_DOUBT) } else { error });
                }
                is_unknown |= !error.is_definite();
            }
        }
        if deadline.has_passed(now) {
            return Ok(None);
        }
        // The iterator is endless; the cap is its own last value.
        let due = now.plus(pauses.next().unwrap_or(LONGEST_PAUSE)).min(deadline.instant());
        clock.sleep_until(due).await;
        now = clock.now();
        if stood_still(due, now) {
            answered = now;
        }
    }
}

/// Bounds a request by the attempt's operation timeout.
///
/// # Errors
/// The request's own error, or [`ErrorKind::Indeterminate`] when the time is over.
///
/// # Cancel safety
/// Dropping it drops the request.
pub async fn within<T>(
    clock: &dyn Clock,
    attempt: &Attempt,
    phase: Phase,
    request: impl Future<Output = Result<T, Error>> + Send,
) -> Result<T, Error> {
    let answer = before(clock, |now| now.plus(attempt.op_timeout), request).await;
    let what = "no answer within the operation timeout";
    answer.unwrap_or_else(|| Err(attempt.error(ErrorKind::Indeterminate, phase, what)))
}
