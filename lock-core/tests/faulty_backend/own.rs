//! Tries that are refused while the same client still gives the lock back in the background.

use std::time::Duration;

use lock_core::multi::{Lockable, try_lock_all};
use lock_core::{ErrorKind, MemoryLocks, Owner};

use crate::lab::{Fault, Lab};

#[tokio::test]
async fn a_try_behind_a_dropped_guard_is_granted_whatever_the_kind() {
    let locks = MemoryLocks::new();
    let (mutex, rwlock, one) = (locks.mutex("a"), locks.rwlock("b"), locks.semaphore("c", 1));
    drop(mutex.lock().await.unwrap());
    drop(mutex.try_lock().await.unwrap().expect("a dropped mutex"));
    drop(mutex.try_lock().await.unwrap().expect("a dropped try"));
    drop(rwlock.read().await.unwrap());
    drop(rwlock.try_write().await.unwrap().expect("a dropped read lock"));
    drop(rwlock.try_read().await.unwrap().expect("a dropped write lock"));
    drop(one.acquire().await.unwrap());
    drop(one.try_acquire().await.unwrap().expect("a dropped permit"));
    assert!(one.try_acquire_many(1).await.unwrap().is_some());
    let (reentrant, one, other) = (locks.reentrant("d"), Owner::new(), Owner::new());
    drop(reentrant.lock(&one).await.unwrap());
    assert!(reentrant.try_lock(&other).await.unwrap().is_some(), "a dropped reentrant lock");
}

#[tokio::test]
async fn a_try_of_several_behind_their_dropped_guards_is_granted() {
    for in_one_step in [true, false] {
        let lab = Lab::new();
        if in_one_step {
            lab.line.takes_several(0);
        }
        let locks = lab.connect();
        let both = || [Lockable::from(locks.mutex("a")), locks.mutex("b").into()];
        drop(locks.mutex("b").lock().await.unwrap());
        drop(try_lock_all(both()).await.unwrap().expect("a dropped mutex"));
        drop(try_lock_all(both()).await.unwrap().expect("two dropped ones"));
        assert_eq!(lab.line.asked("several"), if in_one_step { 4 } else { 0 });
    }
}

#[tokio::test]
async fn a_lock_that_another_client_holds_is_asked_for_twice_at_most() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let lock = locks.mutex("a");
    lock.lock().await.unwrap().release().await.unwrap();
    let held = other.mutex("a").lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 1, "nothing is given back");
    // A try whose answer was lost is undone in the background.
    lab.line.set(Fault::LosesAnswers);
    assert_eq!(locks.mutex("b").try_lock().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    assert_eq!(lock.try_lock().await.unwrap_err().kind(), ErrorKind::Indeterminate);
    lab.line.set(Fault::None);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 5);
    lab.settle().await;
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 6, "it was tried to be given back");
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_release_that_is_not_answered_delays_a_try_by_half_of_its_time() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let lock = locks.mutex("a");
    drop(lock.lock().await.unwrap());
    lab.line.set(Fault::Silent);
    lab.settle().await;
    assert_eq!(lab.line.asked("release"), 1);
    lab.line.set(Fault::None);
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.pass(Duration::from_millis(900)).await;
    assert!(!trying.is_finished());
    lab.pass(Duration::from_millis(100)).await;
    assert!(trying.await.unwrap().unwrap().is_none(), "its own lock is still at the server");
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 1);
}

#[tokio::test]
async fn closing_the_client_ends_a_try_that_waits_for_a_release() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.mutex("a");
    drop(lock.lock().await.unwrap());
    lab.line.set(Fault::Silent);
    lab.settle().await;
    lab.line.set(Fault::None);
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.settle().await;
    let closing = tokio::spawn(async move { locks.close().await });
    lab.settle().await;
    assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    closing.abort();
}
