//! Jobs that keep their lock for a time at least.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::clock::VirtualClock;
use lock_core::memory::MemoryStore;
use lock_core::{ErrorKind, MemoryLocks};
use lock_recipes::{Attempts, Failures, Once, OnceError, Outcome};

use crate::{LONG, is_at_rest, once};

/// The time by which a machine may be late, about.
const LATE: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_short_job_keeps_its_lock_for_the_time_that_was_asked_for() {
    for (value, failures) in [(Ok(1), Failures::Count), (Err("no paper"), Failures::RunAgain)] {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (one, other) = (store.connect(), store.connect());
        let kept = once(&one).with_failures(failures).with_at_least(LONG).unwrap();
        assert_eq!(kept.try_run(1, |_| async { value }).await.unwrap(), Outcome::Ran(value));
        clock.advance(LONG - LATE);
        let busy = once(&other).run(2, |_| async {}).await.unwrap();
        assert!(matches!(busy, Outcome::Busy(Some(_))), "{busy:?}");
        clock.advance(LATE);
        assert_eq!(once(&other).run(2, |_| async { 2 }).await.unwrap(), Outcome::Ran(2));
    }
}

#[tokio::test]
async fn a_job_that_panics_keeps_its_lock_too() {
    let store = MemoryStore::new();
    let (one, other) = (store.connect(), store.connect());
    let kept = once(&one).with_at_least(LONG).unwrap();
    let job = async |_| -> () { std::panic::panic_any("the job's") };
    let panicked = std::panic::AssertUnwindSafe(kept.run(1, job)).catch_unwind().await;
    assert!(panicked.is_err());
    let busy = once(&other).run(2, |_| async {}).await.unwrap();
    assert!(matches!(busy, Outcome::Busy(_)), "{busy:?}");
}

#[tokio::test]
async fn a_value_whose_lock_could_not_be_left_comes_back() {
    const WAY: Duration = Duration::from_millis(10);
    for kind in [ErrorKind::Indeterminate, ErrorKind::Lost] {
        let clock = VirtualClock::new();
        let store = MemoryStore::with_clock(clock.clone());
        let (one, other) = (store.connect(), store.connect());
        let kept = once(&one).with_at_least(LONG).unwrap();
        let job = async || {
            // Of what is asked for from now on.
            store.set_delay(WAY, WAY, 0);
            "receipt"
        };
        let mut run = pin!(kept.run(1, |_| job()));
        let mut outcome = is_at_rest(run.as_mut()).await;
        // The end is recorded, and the lock is being left.
        clock.advance(WAY);
        outcome = outcome.or(is_at_rest(run.as_mut()).await);
        match kind {
            ErrorKind::Lost => assert_eq!(store.lose("job"), 1),
            _ => store.set_reachable(false),
        }
        clock.advance(WAY);
        outcome = outcome.or(is_at_rest(run.as_mut()).await);
        let error = outcome.expect("it should have ended").unwrap_err();
        assert!(
            matches!(&error, OnceError::NotLeft { source, .. } if source.kind() == kind),
            "{error:?}, not {kind:?}"
        );
        assert_eq!(error.into_value(), Some("receipt"));
        store.set_reachable(true);
        store.set_delay(Duration::ZERO, Duration::ZERO, 0);
        let again =
            once(&other).with_wait(LONG).with_attempts(Attempts::AtLeastOnce).run(1, |_| async { "twice" }).await;
        assert!(matches!(again, Ok(Outcome::Skipped { .. })), "its end is recorded: {again:?}");
    }
}

#[tokio::test]
async fn a_job_that_took_longer_gives_its_lock_back_at_once() {
    let store = MemoryStore::new();
    let (one, other) = (store.connect(), store.connect());
    let least = Duration::from_millis(5);
    let kept = once(&one).with_at_least(least).unwrap();
    let job = |_| async { tokio::time::sleep(least * 2).await };
    kept.run(1, job).await.unwrap();
    assert_eq!(once(&other).run(2, |_| async { 2 }).await.unwrap(), Outcome::Ran(2));
    assert_eq!(store.used(), 0);
}

#[tokio::test]
async fn a_job_that_was_skipped_keeps_no_lock() {
    let store = MemoryStore::new();
    let locks = store.connect();
    once(&locks).run(1, |_| async {}).await.unwrap();
    let kept = once(&locks).with_at_least(LONG).unwrap();
    let skipped = kept.run(1, |_| async {}).await.unwrap();
    assert!(matches!(skipped, Outcome::Skipped { .. }), "{skipped:?}");
    assert_eq!(store.used(), 0);
}

#[test]
fn a_time_out_of_range_is_refused_when_it_is_set() {
    let locks = MemoryLocks::new();
    for time in [Duration::ZERO, Duration::MAX] {
        let refused = once(&locks).with_at_least(time).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert!(refused.name().is_some(), "{refused}");
    }
}

/// Nobody can refresh the record while the lock is left.
#[test]
fn a_time_above_half_of_the_retention_is_refused_and_both_are_named() {
    let locks = MemoryLocks::new();
    let minute = Duration::from_secs(60);
    let once = Once::new(locks.recorded("job").unwrap().with_retention(minute));
    for time in [LONG, minute / 2 + Duration::from_millis(1)] {
        let refused = once.clone().with_at_least(time).unwrap_err();
        assert_eq!((refused.kind(), refused.name()), (ErrorKind::InvalidArgument, Some("job")), "{refused}");
        let what = refused.to_string();
        assert!(what.contains(&format!("{time:?}")) && what.contains("60s"), "{what}");
    }
    assert!(once.with_at_least(minute / 2).is_ok());
}
