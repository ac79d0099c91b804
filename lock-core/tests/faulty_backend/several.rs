//! Several locks in one step, and what becomes of it when its answer is late, lost or wrong.

use std::time::Duration;

use lock_core::multi::{Lockable, MultiGuard, lock_all, try_lock_all, try_lock_all_for};
use lock_core::{Client, Error, ErrorKind, Owner};
use tokio::task::JoinHandle;

use crate::lab::{Fault, Faulty, Lab, eventually};

/// A lab whose link takes several locks in one step, and a client over it.
fn lab() -> (Lab, Client<Faulty>) {
    let lab = Lab::new();
    lab.line.takes_several(0);
    let locks = lab.connect();
    (lab, locks)
}

/// Three locks of two kinds.
fn three(locks: &Client<Faulty>) -> [Lockable; 3] {
    let write = Lockable::write(&locks.rwlock("b"));
    [locks.mutex("a").into(), write, locks.mutex("c").fenced().unwrap().into()]
}

/// All of them are free, in the background at once.
async fn nothing_is_left(lab: &Lab) {
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(4)).await;
    eventually("nothing is left", || lab.store.used() == 0).await;
}

fn trying(locks: &Client<Faulty>) -> JoinHandle<Result<Option<MultiGuard>, Error>> {
    tokio::spawn(try_lock_all(three(locks)))
}

#[tokio::test]
async fn several_locks_are_one_request_and_each_is_kept() {
    let (lab, locks) = lab();
    let all = lock_all(three(&locks)).await.unwrap();
    assert_eq!((lab.line.asked("several"), lab.line.asked("lock"), lab.line.asked("try_lock")), (1, 0, 0));
    assert_eq!(all.fencing_tokens().filter(|(_, token)| token.is_some()).count(), 3);
    lab.pass(Duration::from_secs(120)).await;
    assert!(all.is_held());
    all.release().await.unwrap();
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn one_lock_needs_no_such_step() {
    let (lab, locks) = lab();
    let one = lock_all([locks.mutex("a")]).await.unwrap();
    assert_eq!((lab.line.asked("several"), lab.line.asked("lock")), (0, 1));
    drop(one);
}

#[tokio::test]
async fn a_try_that_is_refused_is_one_request_and_a_wait_goes_on_one_by_one() {
    let (lab, locks) = lab();
    let other = lab.store.connect();
    let held = other.mutex("c").lock().await.unwrap();
    assert!(try_lock_all(three(&locks)).await.unwrap().is_none());
    assert_eq!((lab.line.asked("several"), lab.line.asked("try_lock"), lab.line.asked("release")), (1, 0, 0));
    assert_eq!(lab.store.used(), 1, "something is left");
    let waiting = tokio::spawn(lock_all(three(&locks)));
    lab.line.asked_times("lock", 2).await;
    held.release().await.unwrap();
    let all = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
    assert!(all.is_held());
    all.release().await.unwrap();
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn whoever_stands_in_a_queue_goes_first() {
    let (lab, locks) = lab();
    let other = lab.store.connect();
    let held = other.rwlock("b").read().await.unwrap();
    let writer = tokio::spawn({
        let lock = lab.store.connect().rwlock("b");
        async move { lock.write().await }
    });
    let queue = async || !other.rwlock("b").inspect().await.unwrap().waiters.is_empty();
    while !queue().await {
        tokio::task::yield_now().await;
    }
    assert!(try_lock_all(three(&locks)).await.unwrap().is_none());
    held.release().await.unwrap();
    let writing = tokio::time::timeout(Duration::from_secs(10), writer).await.unwrap().unwrap().unwrap();
    assert!(try_lock_all(three(&locks)).await.unwrap().is_none());
    drop(writing);
}

#[tokio::test]
async fn a_lost_answer_is_no_certainty_and_all_are_released() {
    let (lab, locks) = lab();
    lab.line.set(Fault::LosesAnswers);
    let error = try_lock_all(three(&locks)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite(), error.name()), (ErrorKind::Indeterminate, false, Some("a")));
    assert_eq!(lab.store.used(), 3, "the request was carried out");
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn an_answer_that_is_lost_is_not_forgotten_when_a_wait_goes_on_one_by_one() {
    let (lab, locks) = lab();
    lab.line.set(Fault::Hangs);
    let waiting = tokio::spawn(try_lock_all_for(three(&locks), Duration::from_secs(30)));
    lab.line.asked_times("several", 1).await;
    lab.line.set(Fault::Down);
    // The core gives the step up; what comes after it is refused for certain.
    lab.pass(Duration::from_millis(2_600)).await;
    let error = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    let cause = std::error::Error::source(&error).expect("it has a cause").to_string();
    assert!(cause.contains("the link is down"), "{cause}");
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn after_a_definite_error_there_is_nothing_to_undo() {
    let (lab, locks) = lab();
    lab.line.set(Fault::Down);
    let error = try_lock_all(three(&locks)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Unavailable, true), "{error}");
    lab.line.set(Fault::None);
    // Waits for whatever is to be undone.
    locks.close().await.unwrap();
    assert_eq!((lab.line.asked("several"), lab.line.asked("cancel")), (1, 0));
}

#[tokio::test]
async fn a_wait_survives_a_step_that_could_not_be_asked_for() {
    let (lab, locks) = lab();
    lab.line.set(Fault::Silent);
    let waiting = tokio::spawn(lock_all(three(&locks)));
    lab.line.asked_times("several", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_millis(2_100)).await;
    let all = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
    all.release().await.unwrap();
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_try_that_is_dropped_releases_all_of_them() {
    let (lab, locks) = lab();
    lab.line.set(Fault::KeepsAnswers);
    let trying = trying(&locks);
    lab.line.asked_times("several", 1).await;
    eventually("the request is carried out", || lab.store.used() == 3).await;
    trying.abort();
    assert!(trying.await.unwrap_err().is_cancelled());
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_client_that_is_closed_meanwhile_releases_all_of_them() {
    let (lab, locks) = lab();
    lab.line.set(Fault::KeepsAnswers);
    let trying = trying(&locks);
    eventually("the request is carried out", || lab.store.used() == 3).await;
    lab.line.set(Fault::KeepsAnswers);
    let closing = tokio::spawn(async move { locks.close().await });
    assert_eq!(trying.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    nothing_is_left(&lab).await;
    closing.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_grant_that_comes_too_late_releases_all_of_them() {
    let (lab, locks) = lab();
    lab.line.is_late_by(Duration::from_secs(300));
    let error = try_lock_all(three(&locks)).await.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::TimedOut, Some("b")));
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn after_grants_that_came_too_late_no_error_of_a_wait_is_definite() {
    let (lab, locks) = lab();
    lab.line.is_late_by(Duration::from_secs(300));
    let error = lock_all(three(&locks)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::TimedOut, false), "{error}");
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_backend_that_gives_too_few_grants_has_them_taken_back() {
    let (lab, locks) = lab();
    lab.line.takes_several(1);
    let error = try_lock_all(three(&locks)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    nothing_is_left(&lab).await;
}

#[tokio::test]
async fn an_owner_is_marked_as_inside_by_such_a_step_and_only_while_it_is_inside() {
    let (lab, locks) = lab();
    let (me, lock) = (Owner::new(), locks.rwlock("b"));
    let mine = lock.with_owner(me);
    let all = lock_all([locks.mutex("a").into(), Lockable::write(&mine)]).await.unwrap();
    assert_eq!(mine.try_read().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(
        try_lock_all([locks.mutex("c").into(), Lockable::write(&mine)]).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    all.release().await.unwrap();
    drop(mine.try_read().await.unwrap().expect("it is free"));
    nothing_is_left(&lab).await;
}
