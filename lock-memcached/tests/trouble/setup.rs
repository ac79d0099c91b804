//! Servers and clients that are set up in ways that cannot work, and are told so.

use std::time::Duration;

use lock_memcached::{ErrorKind, MemcachedLocks, RestartGuard};
use lock_testkit::servers::memcached::MemcachedOptions;
use lock_testkit::testing::about_time;

use crate::support::{LEASE, client, config, open, server};

#[tokio::test]
async fn a_server_without_cas_numbers_is_refused() {
    let Some(server) = server(MemcachedOptions::new().with_flag("-C")).await else { return };
    let error = MemcachedLocks::connect_with(config(&server)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("-C"), "{error}");
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_if_that_is_wanted() {
    let Some(server) = server(MemcachedOptions::new().evicting()).await else { return };
    let error = MemcachedLocks::connect_with(config(&server).refusing_eviction()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("-M"), "{error}");
    MemcachedLocks::connect_with(config(&server)).await.unwrap();
}

#[tokio::test]
async fn clients_that_disagree_on_the_longest_lease_are_told() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let _agreed = open(&server).await;
    let error = MemcachedLocks::connect_with(config(&server).with_longest_lease(LEASE * 9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("1s") && error.to_string().contains("9s"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_disagree_on_the_room_for_readers_are_told() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let config = || config(&server).with_restart_guard(RestartGuard::Off);
    let many = MemcachedLocks::connect_with(config()).await.unwrap();
    let few = MemcachedLocks::connect_with(config().with_readers(2)).await.unwrap();
    many.rwlock("a").read().await.unwrap().release().await.unwrap();
    for error in [few.rwlock("a").try_read().await.unwrap_err(), few.rwlock("a").write().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("64") && error.to_string().contains('2'), "{error}");
    }
    many.rwlock("a").try_write().await.unwrap().expect("a refused claim was left behind").release().await.unwrap();
}

#[test]
fn a_lease_above_the_longest_is_refused() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let locks = open(&server).await;
        let long = locks.mutex("a").with_ttl(LEASE * 2).try_lock().await.unwrap_err();
        assert_eq!(long.kind(), ErrorKind::InvalidArgument);
        let guard = locks.mutex("a").lock().await.unwrap();
        assert_eq!(guard.extend(LEASE * 2).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(guard.is_held());
    });
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    server.kill().unwrap();
    let error = MemcachedLocks::connect_with(config(&server)).await.unwrap_err();
    assert_eq!((error.kind(), error.server()), (ErrorKind::Unavailable, Some(server.address())));
}

#[tokio::test]
async fn too_many_permits_are_refused() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartGuard::Off).await;
    let error = locks.semaphore("a", 1001).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(
        locks.semaphore("a", 1000).with_ttl(Duration::from_secs(60)).try_acquire_many(1000).await.unwrap().is_some()
    );
}
