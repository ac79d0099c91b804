//! Calls that have a lock already, and are polled slowly or kept without being polled.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lock_core::multi::{lock_all, try_lock_all_for};
use lock_core::{ErrorKind, LeaseOptions, MemoryLocks};
use tokio::sync::Notify;

use crate::lab::{Fault, Lab};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(3);

/// Passes one TTL, and what the steps of time may add to it; then another client can have the lock.
async fn is_free_after_one_ttl(lab: &Lab, name: &str) {
    let other = lab.store.connect();
    assert!(other.mutex(name).try_lock().await.unwrap().is_none(), "it is not taken: the test shows nothing");
    lab.pass(TTL + Duration::from_millis(100)).await;
    let guard = other.mutex(name).try_lock().await.unwrap().expect("a call that nobody polls keeps the lock");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_whose_record_is_being_stamped_is_free_after_one_ttl_without_a_poll() {
    for limit in [None, Some(Duration::ZERO), Some(SECOND)] {
        let lab = Lab::new();
        let recorded = lab.connect().recorded("a").unwrap().with_ttl(TTL);
        lab.line.hangs_at_records(true);
        let mut taking = pin!(async {
            match limit {
                None => recorded.lock().await.map(Some),
                Some(limit) => recorded.try_lock_for(limit).await,
            }
        });
        assert!(futures_util::poll!(&mut taking).is_pending());
        assert_eq!(lab.line.asked("write_record"), 1);
        is_free_after_one_ttl(&lab, "a").await;
        let error = taking.await.unwrap_err();
        assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    }
}

#[tokio::test]
async fn a_lock_whose_record_is_stamped_slowly_is_kept_while_the_call_is_polled() {
    let lab = Lab::new();
    let recorded = lab.connect().recorded("a").unwrap().with_ttl(TTL);
    lab.line.hangs_at_records(true);
    let taking = tokio::spawn(async move { recorded.lock().await });
    lab.line.asked_times("write_record", 1).await;
    // Two TTLs, and less than its patience.
    lab.pass(2 * TTL).await;
    lab.line.hangs_at_records(false);
    lab.pass(SECOND * 5 / 2).await;
    assert!(taking.is_finished(), "it is stamped again");
    let guard = taking.await.unwrap().unwrap();
    assert!(guard.is_held());
    lab.pass(10 * TTL).await;
    assert!(guard.is_held(), "it is renewed by itself from now on");
    guard.release().await.unwrap();
}

/// A call that waits for its second lock has the first one.
async fn waits_for_the_second(lab: &Lab, locks: &MemoryLocks) -> lock_core::MutexGuard {
    let long = LeaseOptions::new(SECOND * 300);
    let held = lab.store.connect().mutex("b").with_lease(long).lock().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
    held
}

#[tokio::test]
async fn locks_that_wait_for_others_are_free_after_one_ttl_without_a_poll() {
    for limit in [None, Some(SECOND * 600)] {
        let lab = Lab::new();
        let locks = lab.store.connect();
        let _held = waits_for_the_second(&lab, &locks).await;
        let both = ["a", "b"].map(|name| locks.mutex(name).with_ttl(TTL));
        let mut taking = pin!(async {
            match limit {
                None => lock_all(both).await.map(Some),
                Some(limit) => try_lock_all_for(both, limit).await,
            }
        });
        assert!(futures_util::poll!(&mut taking).is_pending());
        lab.pass(TTL / 2).await;
        assert!(futures_util::poll!(&mut taking).is_pending());
        is_free_after_one_ttl(&lab, "a").await;
        assert_eq!(taking.await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

#[tokio::test]
async fn locks_that_wait_for_others_are_kept_while_the_call_is_polled() {
    let lab = Lab::new();
    let locks = lab.store.connect();
    let held = waits_for_the_second(&lab, &locks).await;
    let taking = tokio::spawn(lock_all(["a", "b"].map(|name| locks.mutex(name).with_ttl(TTL))));
    for _ in 0..10 {
        lab.pass(TTL).await;
        assert!(lab.store.connect().mutex("a").try_lock().await.unwrap().is_none(), "it has let go");
    }
    held.release().await.unwrap();
    let both = tokio::time::timeout(SECOND * 10, taking).await.expect("it waits on").unwrap().unwrap();
    lab.pass(10 * TTL).await;
    assert!(both.is_held(), "they are renewed by themselves from now on");
    both.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_being_detached_is_free_after_one_ttl_without_a_poll() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let mut detaching = pin!(guard.detach());
    assert!(futures_util::poll!(&mut detaching).is_pending());
    lab.line.set(Fault::None);
    is_free_after_one_ttl(&lab, "a").await;
    assert_eq!(detaching.await.unwrap_err().error.kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_guard_that_was_not_detached_is_renewed_by_itself_again() {
    let lab = Lab::new();
    let guard = lab.connect().mutex("a").with_ttl(TTL).lock().await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    let guard = guard.detach().await.unwrap_err().guard;
    lab.line.set(Fault::None);
    lab.pass(10 * TTL).await;
    assert!(guard.is_held());
}

#[tokio::test]
async fn a_write_lock_that_is_being_downgraded_is_free_after_one_ttl_without_a_poll() {
    let lab = Lab::new();
    let write = lab.connect().rwlock("a").with_ttl(TTL).write().await.unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let mut downgrading = pin!(write.downgrade());
    assert!(futures_util::poll!(&mut downgrading).is_pending());
    lab.line.set(Fault::None);
    let other = lab.store.connect().rwlock("a");
    assert!(other.try_write().await.unwrap().is_none(), "it is not taken: the test shows nothing");
    lab.pass(TTL + Duration::from_millis(100)).await;
    let guard = other.try_write().await.unwrap().expect("a call that nobody polls keeps the lock");
    guard.release().await.unwrap();
    assert_eq!(downgrading.await.unwrap_err().error.kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_lock_that_two_calls_keep_is_free_after_one_ttl_without_a_poll_when_one_of_them_has_ended() {
    let lab = Lab::new();
    let guard = lab.connect().recorded("a").unwrap().with_ttl(TTL).lock().await.unwrap();
    let ends = Notify::new();
    let (mut short, mut unpolled) =
        (pin!(guard.while_polled(ends.notified())), pin!(guard.while_polled(pending::<()>())));
    assert!(futures_util::poll!(&mut short).is_pending());
    assert!(futures_util::poll!(&mut unpolled).is_pending());
    ends.notify_one();
    short.await;
    is_free_after_one_ttl(&lab, "a").await;
}

#[tokio::test]
async fn a_call_that_is_polled_keeps_the_lock_beside_one_that_is_not() {
    let lab = Lab::new();
    let guard = Arc::new(lab.connect().recorded("a").unwrap().with_ttl(TTL).lock().await.unwrap());
    let mut unpolled = pin!(guard.while_polled(pending::<()>()));
    assert!(futures_util::poll!(&mut unpolled).is_pending());
    let polled = tokio::spawn({
        let guard = guard.clone();
        async move { guard.while_polled(pending::<()>()).await }
    });
    lab.pass(3 * TTL).await;
    assert!(guard.is_held());
    polled.abort();
    assert!(polled.await.unwrap_err().is_cancelled());
    is_free_after_one_ttl(&lab, "a").await;
}
