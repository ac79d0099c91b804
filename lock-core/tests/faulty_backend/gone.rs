//! Locks of which the server says, or may have said, that they are gone.

use std::time::Duration;

use lock_core::{Ending, ErrorKind, LeaseOptions, LossReason, Owner};

use crate::lab::{Fault, Lab};

#[tokio::test]
async fn a_write_lock_whose_downgrade_was_not_answered_is_held_by_nobodys_word_and_renewed() {
    let lab = Lab::new();
    let locks = lab.connect();
    let write = locks.rwlock("a").try_write().await.unwrap().unwrap();
    lab.line.set(Fault::LosesAnswers);
    let failed = write.downgrade().await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Indeterminate);
    let write = failed.guard;
    lab.line.set(Fault::None);
    for _ in 0..300 {
        // The holder looks before the keeper does: that must not take a renewal away.
        lab.clock.advance(Duration::from_millis(100));
        assert!(!write.is_held() && write.remaining().is_zero());
        assert_eq!(write.while_held(async {}).await.unwrap_err().error.kind(), ErrorKind::Indeterminate);
        lab.settle().await;
    }
    let read = write.downgrade().await.unwrap();
    assert!(read.is_held() && lab.store.connect().rwlock("a").try_write().await.unwrap().is_none());
}

#[tokio::test]
async fn an_owner_whose_downgrade_was_not_answered_is_refused_rather_than_left_to_wait_for_itself() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.rwlock("a").with_owner(Owner::new());
    let write = lock.write().await.unwrap();
    lab.line.set(Fault::LosesAnswers);
    let failed = write.downgrade().await.unwrap_err();
    lab.line.set(Fault::None);
    assert_eq!(lock.try_write().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(lock.try_read().await.unwrap_err().kind(), ErrorKind::Unsupported);
    failed.guard.downgrade().await.unwrap().release().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn a_downgrade_that_is_answered_after_the_end_of_the_lease_tells_the_loss() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(10)).with_auto_renew(false);
    let write = locks.rwlock("a").with_lease(lease).write().await.unwrap();
    lab.clock.advance(Duration::from_millis(9_850));
    lab.line.set(Fault::KeepsAnswers);
    let downgrading = tokio::spawn(write.downgrade());
    lab.line.asked_times("downgrade", 1).await;
    lab.clock.advance(Duration::from_millis(100));
    lab.line.set(Fault::None);
    lab.pass(Duration::from_millis(100)).await;
    let failed = downgrading.await.unwrap().unwrap_err();
    assert_eq!(failed.error.loss(), Some(&LossReason::Expired));
    assert!(!failed.guard.is_held());
}

#[tokio::test]
async fn a_downgrade_of_what_is_gone_tells_the_loss() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let write = locks.rwlock("a").with_lease(lease).try_write().await.unwrap().unwrap();
    let lost = write.lost();
    lab.store.connect().rwlock("a").force_release(write.grant_id(), "the test").await.unwrap();
    let failed = write.downgrade().await.unwrap_err();
    assert_eq!((failed.error.kind(), failed.error.loss()), (ErrorKind::NotHeld, Some(&LossReason::Taken)));
    assert!(!failed.guard.is_held());
    assert_eq!(crate::runtimes::soon("lost() resolves", lost).await, LossReason::Taken);
}

#[tokio::test]
async fn a_release_that_finds_nothing_tells_the_loss() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let guard = locks.mutex("a").with_lease(lease).lock().await.unwrap();
    let watching = tokio::spawn(guard.lost());
    lab.store.connect().mutex("a").force_release(guard.grant_id(), "the test").await.unwrap();
    let error = guard.release().await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::NotHeld, Some(&LossReason::Taken)));
    assert_eq!(crate::runtimes::soon("lost() resolves", watching).await.unwrap(), LossReason::Taken);
}

/// The second request finds nothing, because the first one was carried out.
#[tokio::test]
async fn a_release_that_was_done_without_an_answer_and_found_done_in_the_background_tells_no_loss() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    let (mut lost, ended) = (guard.lost(), guard.ended());
    lab.line.set(Fault::LosesAnswers);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    lab.line.asked_times("release", 2).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(30)).await;
    assert!(lab.line.asked("release") > 2 && lab.store.used() == 0);
    assert!(futures_util::poll!(&mut lost).is_pending());
    assert_eq!(ended.await, Ending::Released);
}

/// A dropped guard reports nothing: who wants to know whether it was held to the end releases it.
#[tokio::test]
async fn a_dropped_guard_whose_lock_was_gone_tells_that_it_was_released() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(60));
    let guard = locks.mutex("a").with_lease(lease).lock().await.unwrap();
    let (mut lost, ended) = (guard.lost(), guard.ended());
    lab.store.connect().mutex("a").force_release(guard.grant_id(), "the test").await.unwrap();
    drop(guard);
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_secs(30)).await;
    assert!(futures_util::poll!(&mut lost).is_pending());
    assert_eq!(ended.await, Ending::Released);
}

#[tokio::test]
async fn a_release_tells_no_loss() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    let mut lost = guard.lost();
    assert!(futures_util::poll!(&mut lost).is_pending());
    guard.release().await.unwrap();
    lab.pass(Duration::from_secs(30)).await;
    assert!(futures_util::poll!(&mut lost).is_pending());
}
