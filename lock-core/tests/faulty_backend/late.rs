//! Answers and copies of requests that come late.

use std::time::Duration;

use lock_core::clock::Clock;
use lock_core::{ErrorKind, Retry};

use crate::lab::{Fault, Lab, eventually};

#[tokio::test]
async fn a_grant_that_came_after_its_end_is_no_grant_and_is_released() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.is_late_by(Duration::from_secs(60));
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.retry(), error.is_definite()), (ErrorKind::TimedOut, Retry::AfterLease, false));
    assert!(error.to_string().starts_with("granted too late: acquire \"a\" on "), "{error}");
    eventually("the grant is released", || lab.store.used() == 0).await;
}

#[tokio::test]
async fn after_a_release_the_attempt_is_cancelled_until_no_copy_can_come_any_more() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(3);
    guard.release().await.unwrap();
    lab.line.asked_times("cancel", 1).await;
    lab.pass(Duration::from_secs(10)).await;
    assert_eq!((lab.line.asked("release"), lab.line.asked("cancel")), (1, 3));
}

#[tokio::test]
async fn a_cancellation_that_is_answered_in_vain_comes_less_and_less_often() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(1_000);
    guard.release().await.unwrap();
    lab.line.asked_times("cancel", 1).await;
    lab.pass(Duration::from_secs(10)).await;
    let asked = lab.line.asked("cancel");
    assert!((8..=25).contains(&asked), "asked {asked} times in 10 s");
}

#[tokio::test]
async fn after_the_release_of_a_dropped_guard_the_attempt_is_cancelled_too() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(2);
    drop(guard);
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_secs(10)).await;
    assert_eq!((lab.line.asked("release"), lab.line.asked("cancel")), (1, 2));
}

#[tokio::test]
async fn after_a_loss_the_attempt_is_cancelled_too() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.keeps_copies(2);
    lab.store.lose("a");
    guard.extend(Duration::from_secs(10)).await.unwrap_err();
    lab.line.asked_times("cancel", 1).await;
    lab.pass(Duration::from_secs(10)).await;
    assert_eq!(lab.line.asked("cancel"), 2);
}

#[tokio::test]
async fn a_grant_whose_requests_are_settled_is_not_cancelled() {
    let lab = Lab::new();
    let locks = lab.connect();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("a").lock().await.unwrap());
    lab.line.asked_times("release", 2).await;
    lab.pass(Duration::from_secs(10)).await;
    assert_eq!(lab.line.asked("cancel"), 0);
}

#[tokio::test]
async fn what_may_outlast_its_lease_is_released_for_as_long_as_it_may() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.outlasts_leases_by(Duration::from_secs(20));
    let guard = locks.mutex("a").with_ttl(Duration::from_secs(1)).lock().await.unwrap();
    lab.line.set(Fault::Down);
    drop(guard);
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_secs(15)).await;
    let before = lab.line.asked("release");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(lab.line.asked("release"), before + 1, "not released, or released twice");
}

#[tokio::test]
async fn a_renewal_counts_from_its_sending_however_late_its_answer() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let asked = lab.line.asked("renew");
    while lab.line.asked("renew") == asked {
        lab.pass(Duration::from_millis(50)).await;
    }
    let sent = lab.clock.now();
    lab.pass(Duration::from_millis(1_800)).await;
    let before = guard.remaining();
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_millis(100)).await;
    assert!(guard.remaining() > before, "the answer was not taken");
    let left = lab.clock.now().plus(guard.remaining()).since(sent);
    assert!(left <= Duration::from_secs(10), "believed in until {left:?} after the sending");
}

/// The lock is granted, then the record cannot be stamped, and the release that follows is not confirmed.
#[tokio::test]
async fn a_record_that_is_not_stamped_is_no_certainty_while_the_lock_may_be_held() {
    let lab = Lab::new();
    let locks = lab.connect();
    let recorded = locks.recorded("a").unwrap();
    lab.line.set(Fault::KeepsAnswers);
    let taking = tokio::spawn(async move { recorded.try_lock().await });
    eventually("it is granted", || lab.store.used() == 1).await;
    lab.line.set(Fault::Down);
    lab.pass(Duration::from_millis(100)).await;
    let error = tokio::time::timeout(Duration::from_secs(10), taking).await.expect("it ends").unwrap().unwrap_err();
    assert_eq!(lab.line.asked("write_record"), 1);
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(cause.contains("the link is down"), "{cause}");
    assert_eq!(lab.store.used(), 1, "it is free: the test shows nothing");
}
