//! Durations, deadlines and waiting: every case takes its time from here, so that one factor stretches all of them.
//!
//! Nothing in the suite sleeps and hopes. A case waits for an event ([`soon`]), polls to a deadline ([`eventually`]),
//! or asserts that something stays pending ([`stays_pending`]). [`pass`] lets time go by where time itself is the
//! stimulus, such as a lease that is to end.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The variable that holds the factor by which all durations of the suite are stretched, such as `2.5` on a slow
/// machine.
pub const SCALE_VARIABLE: &str = "LOCK_TESTKIT_TIME_SCALE";

/// Between two looks of a poll.
const LOOK_EVERY: Duration = Duration::from_millis(10);

static SCALE: LazyLock<f64> = LazyLock::new(|| {
    let asked = std::env::var(SCALE_VARIABLE).ok().and_then(|text| text.parse::<f64>().ok());
    asked.filter(|scale| scale.is_finite() && *scale > 0.0).unwrap_or(1.0)
});

/// Returns this many milliseconds, stretched by the scale.
#[must_use]
pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).mul_f64(*SCALE)
}

/// The TTL that a case uses unless it says otherwise: 2 s.
pub(crate) fn ttl() -> Duration {
    ms(2000)
}

/// The time that one request may take; the slack of every promise about time (K7).
pub(crate) fn op_timeout() -> Duration {
    ms(2000)
}

/// The time for which a lock may be free while somebody waits for it, without faults (check P1).
pub(crate) fn hand_over() -> Duration {
    ms(1000)
}

/// The time in which something that needs no waiting at all must have happened even on a busy machine.
pub(crate) fn promptly() -> Duration {
    ms(10_000)
}

/// Lets time go by: for stimuli only, never to wait for an effect.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Returns what the future gives, or a failure if it does not do so in time.
#[track_caller]
pub(crate) fn soon<F: Future>(
    what: &str,
    within: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Failure>> {
    let late = Failure::new(format!("{what}: not within {within:?}"));
    async move { tokio::time::timeout(within, future).await.map_err(|_| late) }
}

/// Asks again and again until the answer is `Some`, or fails at the deadline.
#[track_caller]
pub(crate) fn eventually<T>(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> impl Future<Output = Result<T, Failure>> {
    let late = Failure::new(format!("{what}: not within {within:?}"));
    async move {
        let began = Instant::now();
        loop {
            if let Some(answer) = ask().await? {
                return Ok(answer);
            }
            if began.elapsed() >= within {
                return Err(late);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The number that the answers have come to rest at: the same one for half a second. Fails if they do not come to rest in
/// time.
#[track_caller]
pub(crate) fn settled(
    what: &str,
    within: Duration,
    look: impl Fn() -> usize,
) -> impl Future<Output = Result<usize, Failure>> {
    let (mut last, mut since) = (look(), Instant::now());
    let so = async move || {
        let seen = look();
        if seen != last {
            (last, since) = (seen, Instant::now());
        }
        Ok((since.elapsed() >= ms(500)).then_some(last))
    };
    eventually(what, within, so)
}

/// Fails if the future ends within this time. The future can be awaited further on.
#[track_caller]
pub(crate) fn stays_pending<F: Future<Output: Debug>>(
    what: &str,
    time: Duration,
    future: Pin<&mut F>,
) -> impl Future<Output = Result<(), Failure>> {
    let ended = Failure::new(format!("{what}: ended, although it must wait"));
    async move {
        match tokio::time::timeout(time, future).await {
            Ok(output) => Err(ended.and(format_args!("with {output:?}"))),
            Err(_) => Ok(()),
        }
    }
}

/// Polls the future at most `times` times, each time when it was woken, and for at most `patience`; `None` if it is
/// not ready then. Dropping the future afterwards drops it at that very await point.
pub(crate) async fn poll_times<F: Future>(
    mut future: Pin<&mut F>,
    times: usize,
    patience: Duration,
) -> Option<F::Output> {
    let mut polls = 0;
    let driven = std::future::poll_fn(|cx| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    });
    tokio::time::timeout(patience, driven).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_future_is_polled_no_more_often_than_said() {
        let mut never = pin!(std::future::pending::<()>());
        assert_eq!(poll_times(never.as_mut(), 1, ms(1000)).await, None);
        let mut yields = pin!(async {
            tokio::task::yield_now().await;
            7
        });
        assert_eq!(poll_times(yields.as_mut(), 1, ms(1000)).await, None);
        assert_eq!(poll_times(yields.as_mut(), 1, ms(1000)).await, Some(7));
    }

    #[tokio::test]
    async fn a_poll_ends_at_its_deadline() {
        let failure = eventually("the moon", ms(30), async || Ok(None::<()>)).await.unwrap_err();
        assert!(failure.to_string().contains("the moon"), "{failure}");
    }

    #[tokio::test]
    async fn a_number_settles_when_it_stays_the_same() {
        let (began, looks) = (Instant::now(), std::cell::Cell::new(0));
        let rises = || if began.elapsed() < ms(100) { 1 } else { 7 };
        assert_eq!(settled("a number", ms(10_000), rises).await.unwrap(), 7);
        let restless = || {
            looks.set(looks.get() + 1);
            looks.get()
        };
        assert!(settled("a restless number", ms(700), restless).await.is_err());
    }
}
