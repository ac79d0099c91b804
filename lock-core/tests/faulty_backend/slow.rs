//! A store in memory whose answers are delayed.

use std::time::Duration;

use lock_core::clock::VirtualClock;
use lock_core::memory::MemoryStore;
use lock_core::{Error, ErrorKind, GrantId, Phase};

const MINUTE: Duration = Duration::from_secs(60);

/// The call's outcome after this time, in which nothing else happens.
async fn after<T: Send + 'static>(
    clock: &VirtualClock,
    time: Duration,
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let call = tokio::spawn(call);
    tokio::task::yield_now().await;
    clock.advance(time);
    tokio::time::timeout(Duration::from_secs(10), call).await.expect("the call ends").unwrap()
}

#[tokio::test]
async fn a_request_takes_the_delay() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let locks = store.connect();
    store.set_delay(Duration::from_millis(500), Duration::from_millis(500), 1);
    let mutex = locks.mutex("a");
    let asking = tokio::spawn(async move { mutex.try_lock().await });
    tokio::task::yield_now().await;
    clock.advance(Duration::from_millis(499));
    tokio::task::yield_now().await;
    assert!(!asking.is_finished());
    clock.advance(Duration::from_millis(1));
    assert!(asking.await.unwrap().unwrap().is_some());
}

#[tokio::test]
async fn a_request_to_a_store_that_is_too_slow_ends_with_the_operation_timeout() {
    let clock = VirtualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    let locks = store.connect();
    let op_timeout = Duration::from_secs(2);
    let held = locks.mutex("a").lock().await.unwrap();
    store.set_delay(MINUTE, MINUTE, 1);
    let (tried, waited) = (locks.mutex("b"), locks.mutex("c"));
    let error = after(&clock, op_timeout, async move { tried.try_lock().await }).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Acquire));
    let error = after(&clock, op_timeout, async move { waited.lock().await }).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Acquire));
    let error = after(&clock, op_timeout, held.release()).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Release));
    let (seen, freed) = (locks.mutex("a"), locks.mutex("a"));
    let error = after(&clock, op_timeout, async move { seen.inspect().await }).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Inspect));
    let grant = GrantId::random().unwrap();
    let freeing = async move { freed.force_release(grant, "the test asks").await };
    let error = after(&clock, op_timeout, freeing).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Indeterminate, Phase::Inspect));
}
