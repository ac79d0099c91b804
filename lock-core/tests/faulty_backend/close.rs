//! The end of a client.

use std::time::Duration;

use lock_core::{ErrorKind, Locks, MemoryLocks, Phase, Retry};

use crate::lab::{Fault, Lab};

#[tokio::test]
async fn guards_that_were_dropped_just_before_leave_nothing() {
    let lab = Lab::new();
    let locks = lab.connect();
    for i in 0..50 {
        drop(locks.mutex(format!("{i}")).lock().await.unwrap());
    }
    locks.close().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[test]
fn a_runtime_that_ends_after_the_close_has_lost_nothing() {
    let store = lock_core::memory::MemoryStore::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let used_after = |closes: bool| {
        runtime().block_on(async {
            let locks = store.connect();
            drop(locks.mutex(format!("closes {closes}")).lock().await.unwrap());
            if closes {
                locks.close().await.unwrap();
            }
        });
        store.used()
    };
    assert_eq!(used_after(true), 0);
    assert_eq!(used_after(false), 1, "the test cannot tell");
}

#[tokio::test]
async fn waits_end_and_new_acquisitions_are_refused() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.mutex("a");
        async move { lock.lock().await }
    });
    lab.line.asked_times("lock", 1).await;
    locks.close().await.unwrap();
    assert!(other.mutex("a").inspect().await.unwrap().waiters.is_empty(), "a place in the queue is left");
    let waited = waiting.await.unwrap().unwrap_err();
    let refused = locks.clone().mutex("b").try_lock().await.unwrap_err();
    for error in [waited, refused] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Closed, Retry::Never));
        assert!(error.name().is_some() && error.backend() == Some("faulty"), "{error}");
    }
    assert_eq!(lab.line.asked("try_lock"), 0, "a closed client asked the server");
    held.release().await.unwrap();
}

#[tokio::test]
async fn guards_that_are_still_there_stay_valid() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    locks.close().await.unwrap();
    lab.pass(Duration::from_secs(30)).await;
    assert!(guard.is_held(), "a guard of a closed client was not renewed");
    guard.release().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn what_is_not_confirmed_in_one_operation_timeout_is_counted() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guards = [locks.mutex("a").lock().await.unwrap(), locks.mutex("b").lock().await.unwrap()];
    lab.line.set(Fault::Down);
    drop(guards);
    let (outcome, ()) = tokio::join!(locks.close(), lab.pass(Duration::from_millis(2050)));
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Close));
    assert!(error.to_string().contains(": 2 releases or cancellations"), "{error}");
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(5)).await;
    locks.close().await.unwrap();
    assert_eq!(lab.store.used(), 0);
}

#[tokio::test]
async fn a_release_that_another_task_waits_for_is_waited_for_too() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    lab.line.set(Fault::Silent);
    let releasing = tokio::spawn(guard.release());
    lab.line.asked_times("release", 1).await;
    lab.line.set(Fault::None);
    // The first release gets no answer; the background repeats it.
    lab.pass(Duration::from_millis(500)).await;
    let closed = async {
        locks.close().await.unwrap();
        lab.store.used()
    };
    let (left, ()) = tokio::join!(closed, lab.pass(Duration::from_millis(1950)));
    assert_eq!(left, 0);
    assert_eq!(releasing.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn the_erased_form_closes_the_same_client() {
    let client = MemoryLocks::new();
    let locks: Locks = client.clone().into();
    locks.close().await.unwrap();
    assert_eq!(client.mutex("a").lock().await.unwrap_err().kind(), ErrorKind::Closed);
}
