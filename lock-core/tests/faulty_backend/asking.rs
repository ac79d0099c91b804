//! The requests of one acquisition, and those that it does without.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lock_core::{ErrorKind, Phase};

use crate::lab::{Fault, Lab, eventually};

#[tokio::test]
async fn a_wait_that_ran_out_is_cancelled_before_it_says_so() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let lock = locks.mutex("a");
    let mut waiting = pin!(lock.try_lock_for(Duration::from_millis(100)));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    lab.clock.advance(Duration::from_millis(100));
    assert!(matches!(futures_util::poll!(&mut waiting), Poll::Ready(Ok(None))));
    // Nothing else has run since: it was not left to the background.
    assert_eq!(lab.line.asked("cancel"), 1);
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(lab.line.asked("cancel"), 1, "cancelled again although it was settled");
    held.release().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn a_cancellation_that_takes_too_long_is_left_to_the_background() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let lock = locks.mutex("a");
    let waiting = tokio::spawn(async move { lock.try_lock_for(Duration::from_secs(1)).await });
    lab.line.asked_times("lock", 1).await;
    lab.line.keeps_copies(3);
    lab.pass(Duration::from_millis(1_100)).await;
    assert!(waiting.await.unwrap().unwrap().is_none());
    lab.pass(Duration::from_secs(5)).await;
    assert_eq!(lab.line.asked("cancel"), 3, "asked until nothing can be left");
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_try_that_was_answered_is_not_cancelled() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let _held = other.mutex("held").lock().await.unwrap();
    assert!(locks.mutex("held").try_lock().await.unwrap().is_none());
    lab.line.set(Fault::Down);
    assert_eq!(locks.mutex("down").try_lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(lab.line.asked("cancel"), 0);
}

#[tokio::test]
async fn a_try_without_an_answer_is_cancelled() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::LosesAnswers);
    assert_eq!(locks.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    lab.line.set(Fault::None);
    eventually("what it took is released", || lab.store.used() == 0).await;
}

#[tokio::test]
async fn a_try_that_the_end_of_the_client_has_cut_short_is_cancelled() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::KeepsAnswers);
    let lock = locks.mutex("a");
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    eventually("it is granted", || lab.store.used() == 1).await;
    let closed = tokio::spawn(async move { locks.close().await });
    let error = trying.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Closed, false), "{error}");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(1)).await;
    closed.await.unwrap().unwrap();
    assert_eq!(lab.store.used(), 0, "the grant is left at the server");
}

#[tokio::test]
async fn permits_that_can_never_be_had_are_refused_before_the_server_is_asked() {
    let lab = Lab::new();
    let locks = lab.connect();
    for (permits, limit) in [(0, 2), (3, 2), (1, 0), (0, 0)] {
        let error = locks.semaphore("a", limit).try_acquire_many(permits).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.phase()),
            (ErrorKind::InvalidArgument, Phase::Configure),
            "{permits} of {limit}"
        );
    }
    assert_eq!(lab.line.asked("try_acquire"), 0);
    for (permits, limit) in [(1, 1), (1, 2), (2, 2)] {
        let name = format!("{permits} of {limit}");
        assert!(locks.semaphore(name, limit).try_acquire_many(permits).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn ttls_that_the_server_does_not_allow_are_refused_before_it_is_asked() {
    let lab = Lab::new();
    lab.line.allows_ttls_up_to(Duration::from_secs(20));
    let (locks, longest, longer) = (lab.connect(), Duration::from_secs(20), Duration::from_millis(20_001));
    let error = locks.mutex("a").with_ttl(longer).try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Configure), "{error}");
    let guard = locks.mutex("a").with_ttl(longest).try_lock().await.unwrap().unwrap();
    let error = guard.extend(longer).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Configure), "{error}");
    assert_eq!((lab.line.asked("try_lock"), lab.line.asked("renew")), (1, 0));
    guard.extend(longest).await.unwrap();
}

#[tokio::test]
async fn a_ttl_of_which_a_coarse_server_leaves_nothing_is_refused_before_anything_is_asked() {
    let lab = Lab::new();
    lab.line.counts_in(Duration::from_secs(1));
    let locks = lab.connect();
    let taken = async |ms| locks.mutex("a").with_ttl(Duration::from_millis(ms)).try_lock().await;
    let error = taken(1010).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::InvalidArgument, Phase::Configure), "{error}");
    assert_eq!(lab.line.asked("try_lock"), 0);
    assert!(taken(1020).await.unwrap().unwrap().is_held());
}

#[test]
fn tokens_are_promised_by_type_only_where_the_backend_has_them() {
    let lab = Lab::new();
    let locks = lab.connect();
    locks.mutex("a").fenced().unwrap();
    lab.line.has_no_tokens();
    let error = locks.mutex("a").fenced().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Unsupported, Some("a")));
}

#[tokio::test]
async fn a_client_that_is_gone_leaves_no_task() {
    let lab = Lab::new();
    let locks = lab.connect();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert!(alive() > 0, "the test cannot tell");
    drop(locks);
    eventually("all tasks have ended", || alive() == 0).await;
}

#[tokio::test]
async fn the_lock_is_not_handed_over_to_a_wait_that_was_dropped() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let lock = locks.mutex("a");
    let waiting = tokio::spawn(async move { lock.lock().await });
    lab.line.asked_times("lock", 1).await;
    lab.line.set(Fault::Down);
    waiting.abort();
    lab.line.asked_times("cancel", 1).await;
    held.release().await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_some(), "handed over to nobody");
}
