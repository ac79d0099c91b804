//! A backend that never answers and gives nothing up: the core bounds every request by itself.

use std::time::Duration;

use lock_core::{Error, ErrorKind, GrantId, LeaseOptions, Phase};

use crate::lab::{Fault, Lab, eventually};

/// Longer than one operation timeout, and than what the core adds to it.
const BOUND: Duration = Duration::from_millis(2_600);

/// The error of this call, to which the backend never answers.
async fn cut<T: Send + 'static>(
    lab: &Lab,
    time: Duration,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Error {
    let call = tokio::spawn(call);
    tokio::task::yield_now().await;
    lab.pass(time).await;
    let ended = tokio::time::timeout(Duration::from_secs(10), call).await.expect("the call ends");
    ended.unwrap().err().expect("nobody has answered")
}

#[tokio::test]
async fn every_request_ends() {
    let lab = Lab::new();
    let locks = lab.connect();
    let lease = LeaseOptions::new(Duration::from_secs(60)).with_auto_renew(false);
    let released = locks.mutex("released").with_lease(lease).lock().await.unwrap();
    let extended = locks.mutex("extended").with_lease(lease).lock().await.unwrap();
    let written = locks.rwlock("written").with_lease(lease).try_write().await.unwrap().unwrap();
    let mut permit = locks.semaphore("permits", 2).with_lease(lease).try_acquire_many(2).await.unwrap().unwrap();
    let grant = GrantId::random().unwrap();
    lab.line.set(Fault::Hangs);
    let locks_of = || locks.clone();

    let (a, b) = (locks_of(), locks_of());
    let error = cut(&lab, BOUND, async move { a.mutex("a").try_lock().await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Acquire), "{error}");
    assert_eq!((error.name(), error.backend()), (Some("a"), Some("faulty")), "{error}");
    let waits = Duration::from_secs(3);
    let error = cut(&lab, waits + BOUND, async move { b.mutex("b").try_lock_for(waits).await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Wait), "{error}");

    let error = cut(&lab, BOUND, async move { extended.extend(Duration::from_secs(60)).await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Renew), "{error}");
    let error = cut(&lab, BOUND, released.release()).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Release), "{error}");
    let error = cut(&lab, BOUND, async move { written.downgrade().await.map_err(Error::from) }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Downgrade), "{error}");
    let error = cut(&lab, BOUND, async move { permit.release_some(1).await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Release), "{error}");

    let (seen, freed) = (locks.mutex("a"), locks.mutex("a"));
    let error = cut(&lab, BOUND, async move { seen.inspect().await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Inspect), "{error}");
    let error = cut(&lab, BOUND, async move { freed.force_release(grant, "the test asks").await }).await;
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Inspect), "{error}");
}

#[tokio::test]
async fn what_hangs_in_the_background_is_asked_again() {
    let lab = Lab::new();
    let locks = lab.connect();
    let (kept, dropped) = (locks.mutex("kept").lock().await.unwrap(), locks.mutex("dropped").lock().await.unwrap());
    lab.line.set(Fault::Hangs);
    drop(dropped);
    lab.line.asked_times("release", 1).await;
    lab.pass(Duration::from_secs(4)).await;
    lab.line.asked_times("renew", 1).await;
    lab.line.set(Fault::None);
    lab.pass(Duration::from_secs(4)).await;
    assert_eq!(lab.store.used(), 1, "the release was not repeated");
    lab.pass(Duration::from_secs(10)).await;
    assert!(kept.is_held(), "the renewal was not repeated");
}

#[tokio::test]
async fn a_clean_up_that_is_given_up_is_forgotten_by_the_backend() {
    let lab = Lab::new();
    let locks = lab.connect();
    let guard = locks.mutex("a").lock().await.unwrap();
    let grant = guard.grant_id();
    lab.line.set(Fault::Down);
    drop(guard);
    lab.pass(Duration::from_secs(11)).await;
    assert!(lab.line.forgotten().is_empty(), "before its lease and one operation timeout were over");
    lab.pass(Duration::from_secs(3)).await;
    eventually("the backend is told", || lab.line.forgotten() == [grant]).await;
}

#[tokio::test]
async fn a_clean_up_goes_on_while_something_may_remain() {
    let lab = Lab::new();
    let locks = lab.connect();
    lab.line.set(Fault::LosesAnswers);
    locks.mutex("a").try_lock().await.unwrap_err();
    lab.line.set(Fault::Down);
    lab.line.lets_remain(true);
    lab.pass(Duration::from_secs(90)).await;
    assert!(lab.line.forgotten().is_empty(), "given up although something may be left");
    let before = lab.line.asked("cancel");
    lab.pass(Duration::from_secs(30)).await;
    let asked = lab.line.asked("cancel") - before;
    assert!((10..=30).contains(&asked), "asked {asked} times in 30 s");
    lab.line.lets_remain(false);
    lab.pass(Duration::from_secs(3)).await;
    assert_eq!(lab.line.forgotten().len(), 1);
}
