//! For a backend's own tests, beside the suite: servers that may be missing, and waiting with a deadline.
//!
//! A test that waits asks [`eventually`] or waits for an event [`soon`]; both fail the test where they were called.

#![expect(clippy::panic, reason = "that is how a test fails")]

use std::future::Future;
use std::time::Duration;

use crate::harness::Missing;
use crate::run::REQUIRE_VARIABLE;
use crate::time;

/// By when something that needs no waiting has happened even on a busy machine.
pub const PROMPTLY: Duration = Duration::from_secs(10);

/// What was started or made; `None`, loudly, where what it needs is not installed: the test ends there.
///
/// # Panics
/// If it is there and does not work, or if [`REQUIRE_VARIABLE`] is set.
#[track_caller]
pub fn installed<T>(outcome: Result<T, Missing>) -> Option<T> {
    let missing = match outcome {
        Ok(there) => return Some(there),
        Err(missing) => missing,
    };
    let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
    assert!(!required && !missing.is_broken(), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

/// What the future gives, within the time.
///
/// # Panics
/// If it takes longer; with the place of the call.
#[track_caller]
pub fn soon<F: Future>(what: &str, within: Duration, future: F) -> impl Future<Output = F::Output> {
    let waited = time::soon(what, within, future);
    async move { waited.await.unwrap_or_else(|failure| panic!("{failure}")) }
}

/// Asks until the answer is yes: `true`, or `Some`, whose content it gives.
///
/// # Panics
/// If that takes longer; with the place of the call.
#[track_caller]
pub fn eventually<A: Answer>(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> A,
) -> impl Future<Output = A::Found> {
    let answered = time::eventually(what, within, async move || Ok(ask().await.found()));
    async move { answered.await.unwrap_or_else(|failure| panic!("{failure}")) }
}

/// An answer to the question whether something has come about.
pub trait Answer {
    /// What was found.
    type Found;

    /// What was found, if it was.
    fn found(self) -> Option<Self::Found>;
}

impl Answer for bool {
    type Found = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Found = T;

    fn found(self) -> Option<T> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Broken;
    use crate::time::ms;

    #[tokio::test]
    async fn an_answer_is_waited_for() {
        let mut asked = 0;
        eventually("the third answer", PROMPTLY, async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!(eventually("something", PROMPTLY, async || Some("found")).await, "found");
        assert_eq!(soon("a ready future", PROMPTLY, std::future::ready(7)).await, 7);
    }

    #[tokio::test]
    async fn what_does_not_come_about_fails_the_test_at_its_place() {
        let never = tokio::spawn(async { eventually("the moon", ms(20), async || false).await });
        let pending = tokio::spawn(async { soon("the sun", ms(20), std::future::pending::<()>()).await });
        for (waiting, what) in [(never, "the moon"), (pending, "the sun")] {
            let panic = waiting.await.unwrap_err().into_panic();
            let said = panic.downcast_ref::<String>().unwrap();
            assert!(said.contains(what) && said.contains(file!()), "{said}");
        }
    }

    #[test]
    fn only_what_is_not_installed_is_skipped() {
        assert_eq!(installed(Ok::<_, Missing>(1)), Some(1));
        let broken = || installed::<()>(Err(Broken::new("it is there and does not answer").into()));
        assert!(std::panic::catch_unwind(broken).is_err());
    }
}
