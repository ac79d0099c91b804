//! Tries that are refused while the same client still gives the lock back in the background.

use std::pin::pin;
use std::time::Duration;

use lock_core::multi::{Lockable, lock_all, try_lock_all, try_lock_all_for};
use lock_core::{Client, ErrorKind, MemoryLocks, Owner};

use crate::lab::{Fault, Faulty, Lab};

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Drops a guard of this mutex, whose release meets this fault.
async fn drop_guard(lab: &Lab, locks: &Client<Faulty>, name: &'static str, fault: Fault) {
    let before = lab.line.asked("release");
    drop(locks.mutex(name).lock().await.unwrap());
    lab.line.set(fault);
    lab.settle().await;
    assert_eq!(lab.line.asked("release"), before + 1);
    lab.line.set(Fault::None);
}

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
    drop_guard(&lab, &locks, "a", Fault::Silent).await;
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.pass(ms(900)).await;
    assert!(!trying.is_finished());
    lab.pass(ms(100)).await;
    assert!(trying.await.unwrap().unwrap().is_none(), "its own lock is still at the server");
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 1);
}

#[tokio::test]
async fn closing_the_client_ends_a_try_that_waits_for_a_release() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.mutex("a");
    drop_guard(&lab, &locks, "a", Fault::Silent).await;
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.settle().await;
    let closing = tokio::spawn(async move { locks.close().await });
    lab.settle().await;
    assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    closing.abort();
}

#[tokio::test]
async fn the_guard_of_a_second_try_has_the_whole_operation_timeout() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.mutex("a");
    drop_guard(&lab, &locks, "a", Fault::Late(ms(900))).await;
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.pass(ms(900)).await;
    let guard = trying.await.unwrap().unwrap().expect("behind a late release");
    lab.line.set(Fault::Silent);
    let releasing = tokio::spawn(guard.release());
    lab.settle().await;
    lab.pass(ms(1_900)).await;
    assert!(!releasing.is_finished());
    lab.pass(ms(100)).await;
    assert_eq!(releasing.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn a_second_try_ends_one_operation_timeout_behind_the_beginning() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lock = locks.mutex("a");
    drop_guard(&lab, &locks, "a", Fault::Late(ms(500))).await;
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.settle().await;
    lab.line.set(Fault::Hangs);
    lab.pass(ms(1_950)).await;
    assert_eq!((lab.line.asked("try_lock"), trying.is_finished()), (2, false));
    lab.pass(ms(50)).await;
    assert!(trying.is_finished());
    assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Indeterminate);
}

#[tokio::test]
async fn a_refusal_that_took_more_than_half_of_the_time_is_the_answer() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    drop_guard(&lab, &locks, "a", Fault::Late(ms(300))).await;
    let (lock, others) = (locks.mutex("a"), other.mutex("a"));
    let next = tokio::spawn(async move { others.lock().await });
    lab.line.set(Fault::Late(ms(1_200)));
    let trying = tokio::spawn(async move { lock.try_lock().await });
    lab.line.asked_times("try_lock", 1).await;
    lab.pass(ms(1_200)).await;
    assert!(trying.is_finished() && trying.await.unwrap().unwrap().is_none());
    assert_eq!(lab.line.asked("try_lock"), 1);
    drop(next.await.unwrap());
}

#[tokio::test]
async fn waits_for_several_do_not_wait_for_what_their_client_releases() {
    let lab = Lab::new();
    lab.line.takes_several(0);
    let (locks, other) = (lab.connect(), lab.store.connect());
    drop_guard(&lab, &locks, "a", Fault::Silent).await;
    let held = other.mutex("b").lock().await.unwrap();
    let both = [locks.mutex("a"), locks.mutex("b")];
    let trying = tokio::spawn(try_lock_all_for(both.clone(), ms(100)));
    lab.settle().await;
    lab.pass(ms(250)).await;
    assert!(trying.is_finished() && trying.await.unwrap().unwrap().is_none());
    let asked = lab.line.asked("lock");
    let waiting = tokio::spawn(lock_all(both));
    lab.settle().await;
    assert_eq!(lab.line.asked("lock"), asked + 1, "it is not in the queue at once");
    waiting.abort();
    held.release().await.unwrap();
}

/// It looks once more at its end, whether somebody else holds the lock.
#[tokio::test]
async fn a_reentrant_wait_that_ran_out_does_not_wait_for_what_its_client_releases() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let (lock, owner, stranger) = (locks.reentrant("a"), Owner::new(), Owner::new());
    let held = other.reentrant("a").lock(&stranger).await.unwrap();
    let queued = tokio::spawn({
        let (lock, owner) = (lock.clone(), owner.clone());
        async move { lock.lock(&owner).await }
    });
    lab.settle().await;
    lab.line.set(Fault::Silent);
    assert!(futures_util::poll!(pin!(lock.try_lock(&stranger))).is_pending());
    lab.settle().await;
    assert_eq!(lab.line.asked("cancel"), 1);
    lab.line.set(Fault::None);
    let trying = tokio::spawn(async move { lock.try_lock_for(&owner, ms(100)).await });
    lab.settle().await;
    lab.pass(ms(250)).await;
    assert!(trying.is_finished() && trying.await.unwrap().unwrap().is_none());
    queued.abort();
    held.release().await.unwrap();
}

#[tokio::test]
async fn locks_of_other_kinds_have_nothing_to_do_with_it() {
    let lab = Lab::new();
    let (locks, other) = (lab.connect(), lab.store.connect());
    let held = other.semaphore("a", 1).acquire().await.unwrap();
    drop_guard(&lab, &locks, "a", Fault::Silent).await;
    assert!(locks.semaphore("a", 1).try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
}
