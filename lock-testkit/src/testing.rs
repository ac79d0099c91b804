//! For a backend's own tests, beside the suite: servers that may be missing, waiting with a deadline, and tests about time.
//!
//! A test that waits asks [`eventually`] or waits for an event [`soon`]; both fail the test where they were called. One in
//! which a lease may end, or which bounds how long something takes, says that it is [`about_time`].

#![expect(clippy::panic, reason = "that is how a test fails")]

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use lock_core::{Error, ErrorKind, Lease};

use crate::error::Missing;
use crate::run::{REQUIRE_VARIABLE, runtime};
pub use crate::stopped_runtime::StoppedRuntime;
use crate::time;
use crate::void_runs;

/// The time in which something that needs no waiting has happened even on a busy machine.
pub const PROMPTLY: Duration = Duration::from_secs(10);

/// Returns what was started or made; `None`, loudly, if something that it needs is not installed: the test ends there.
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

/// A test whose premise is a machine that runs, since it is about a lease that ends or a bound on elapsed time: a whole
/// `#[test]`, in a runtime of its own.
///
/// A shared machine may stand still for a second. A run that fails while it did, which must be proven, says nothing, as in
/// the suite; it is judged by another one, and by three at most. Any other failure counts at once.
///
/// # Panics
/// As the test does.
pub fn about_time(mut test: impl AsyncFnMut()) {
    let thread = std::thread::current();
    let judged = void_runs::judge(thread.name().unwrap_or("a test"), |_| false, || run_once(&mut test));
    if let Err(judged) = judged {
        if let Some(remark) = judged.remark() {
            eprintln!("{remark}");
        }
        resume_unwind(judged.failure.0);
    }
}

/// Runs a test once, of which nothing is left for the next one.
fn run_once(test: &mut impl AsyncFnMut()) -> Result<(), Panic> {
    let runtime = runtime(None).map_err(|error| Panic(Box::new(format!("no runtime: {error}"))))?;
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(test())));
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome.map_err(Panic)
}

/// A failed test's panic; its message has been printed.
struct Panic(Box<dyn Any + Send>);

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = self.0.downcast_ref::<String>().map(String::as_str).or(self.0.downcast_ref::<&str>().copied());
        f.write_str(said.unwrap_or("it panicked"))
    }
}

/// Waits until the lease has been renewed so many times from now on.
///
/// # Panics
/// If it is lost before, or if one of them takes longer than [`PROMPTLY`]; with the place of the call.
#[track_caller]
pub fn renewed(lease: &Lease, times: u32) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        for _ in 0..times {
            let latest = ends_at(lease).1;
            let outlives = async || {
                assert!(lease.is_held(), "{caller}: the lease is lost");
                ends_at(lease).0 > latest
            };
            eventually(&format!("a renewal for {caller}"), PROMPTLY, outlives).await;
        }
    }
}

/// The earliest and the latest instant at which the lease may end, as far as one can see who is interrupted at any time.
fn ends_at(lease: &Lease) -> (Instant, Instant) {
    let before = Instant::now();
    let left = lease.remaining();
    (before + left, Instant::now() + left)
}

/// Returns what the future gives, within the time.
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
) -> impl Future<Output = A::Value> {
    let answered = time::eventually(what, within, async move || Ok(ask().await.found()));
    async move { answered.await.unwrap_or_else(|failure| panic!("{failure}")) }
}

/// The verdict on connecting. One attempt has a time of its own, which a machine that stands still takes for itself: that it
/// is [`Unavailable`](lock_core::ErrorKind::Unavailable) is no verdict yet.
///
/// # Panics
/// If there is none within [`PROMPTLY`].
#[track_caller]
pub fn connected<T>(mut connect: impl AsyncFnMut() -> Result<T, Error>) -> impl Future<Output = Result<T, Error>> {
    eventually("a verdict on connecting", PROMPTLY, async move || match connect().await {
        Err(error) if error.kind() == ErrorKind::Unavailable => None,
        verdict => Some(verdict),
    })
}

/// An answer to the question whether something has come about.
pub trait Answer {
    /// The value that was found.
    type Value;

    /// Returns the value, if it was found.
    fn found(self) -> Option<Self::Value>;
}

impl Answer for bool {
    type Value = ();

    fn found(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Answer for Option<T> {
    type Value = T;

    fn found(self) -> Option<T> {
        self
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::error::HarnessError;
    use crate::panics::{Run, Working};
    use crate::stalls;
    use crate::time::ms;

    /// The panics of this thread, which are meant, concern no other test.
    fn own_panics() -> Working {
        Run::work(Some(Run::new()))
    }

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
        let _working = own_panics();
        let never = tokio::spawn(async { eventually("the moon", ms(20), async || false).await });
        let pending = tokio::spawn(async { soon("the sun", ms(20), std::future::pending::<()>()).await });
        for (waiting, what) in [(never, "the moon"), (pending, "the sun")] {
            let panic = waiting.await.unwrap_err().into_panic();
            let said = panic.downcast_ref::<String>().unwrap();
            assert!(said.contains(what) && said.contains(file!()), "{said}");
        }
    }

    #[test]
    fn a_test_about_time_fails_at_once_on_a_machine_that_runs() {
        let _working = own_panics();
        let mut runs = 0;
        let began = stalls::watch();
        let failing = || {
            about_time(async || {
                runs += 1;
                panic!("in run {runs}");
            });
        };
        let said = *catch_unwind(AssertUnwindSafe(failing)).unwrap_err().downcast::<String>().unwrap();
        // Unless it did not: then there are more of them, and the last one is what is told.
        assert!(said == format!("in run {runs}") && (runs == 1 || stalls::since(began).is_some()), "{said}");
    }

    #[tokio::test]
    async fn a_renewal_is_waited_for_and_a_lost_lease_has_none() {
        let _working = own_panics();
        let store = lock_core::memory::MemoryStore::new();
        let lease = lock_core::LeaseOptions::new(ms(20_000)).with_renew_every(ms(50));
        let held = store.connect().mutex("renewed").with_lease(lease).lock().await.unwrap();
        renewed(&held, 2).await;
        store.lose("renewed");
        held.lost().await;
        let panic = AssertUnwindSafe(renewed(&held, 1)).catch_unwind().await.unwrap_err();
        let said = panic.downcast_ref::<String>().unwrap();
        assert!(said.contains("the lease is lost") && said.contains(file!()), "{said}");
    }

    #[test]
    fn only_what_is_not_installed_is_skipped() {
        let _working = own_panics();
        assert_eq!(installed(Ok::<_, Missing>(1)), Some(1));
        let broken = || installed::<()>(Err(HarnessError::new("it is there and does not answer").into()));
        assert!(std::panic::catch_unwind(broken).is_err());
    }
}
