//! Guards that carry their token by type.

use lock_core::{FencingToken, MemoryLocks, MutexGuard, Owner};

#[tokio::test]
async fn every_kind_that_can_be_fenced_has_its_tokens() {
    let locks = MemoryLocks::new();
    let me = Owner::new();
    let mutex = locks.mutex("a").fenced().unwrap();
    let rwlock = locks.rwlock("a").fenced().unwrap();
    let reentrant = locks.reentrant("a").fenced().unwrap();

    let guard = mutex.lock().await.unwrap();
    let first: FencingToken = guard.fencing_token();
    assert!(mutex.try_lock().await.unwrap().is_none());
    let plain: MutexGuard = guard.into();
    assert_eq!(plain.fencing_token(), Some(first));
    plain.release().await.unwrap();
    let again = mutex.try_lock().await.unwrap().unwrap();
    assert!(again.fencing_token() > first);
    assert!(again.into_inner().is_held(), "the plain guard does not hold");

    let write = rwlock.write().await.unwrap();
    let token = write.fencing_token();
    assert!(rwlock.try_read().await.unwrap().is_none());
    let read = write.downgrade().await.unwrap();
    let other = rwlock.try_read().await.unwrap().unwrap();
    assert_eq!(read.fencing_token(), token);
    assert!(rwlock.try_write().await.unwrap().is_none());
    other.release().await.unwrap();
    read.release().await.unwrap();

    let outer = reentrant.lock(&me).await.unwrap();
    let inner = reentrant.try_lock(&me).await.unwrap().unwrap();
    assert_eq!((inner.depth(), inner.fencing_token()), (2, outer.fencing_token()));
    inner.release().await.unwrap();
    outer.release().await.unwrap();
}

#[tokio::test]
async fn a_downgrade_that_fails_returns_the_fenced_guard() {
    let store = lock_core::memory::MemoryStore::new();
    let lock = store.connect().rwlock("a").fenced().unwrap();
    let write = lock.write().await.unwrap();
    let token = write.fencing_token();
    store.set_reachable(false);
    let failed = write.downgrade().await.unwrap_err();
    assert_eq!(failed.guard.fencing_token(), token);
    store.set_reachable(true);
    failed.guard.release().await.unwrap();
}
