//! Releases by force that meet a renewal on their way.

use std::time::Duration;

use lock_memcached::{ErrorKind, LossReason, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{client, config, server};

/// A lease that is not renewed by itself while a test lasts.
const TTL: Duration = Duration::from_secs(60);
/// More deletions than are tried.
const MORE: usize = 50;

/// An operator behind a link, who has the time for many rounds.
async fn operator(server: &MemcachedServer) -> (Proxy, MemcachedLocks) {
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(server).with_restart_policy(RestartPolicy::Off);
    config.url = format!("memcached://{}", link.address());
    config.client.op_timeout = Duration::from_secs(15);
    (link, MemcachedLocks::connect_with(config).await.unwrap())
}

/// Keeps the next such request from the server.
fn kept(request: &str) -> LinkFault {
    LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, request)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_renewed_meanwhile_is_released_by_force_all_the_same() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, operator) = operator(&server).await;
    let guard = client(&server, RestartPolicy::Off).await.mutex("held").with_ttl(TTL).lock().await.unwrap();
    let deletion = link.inject(kept("md lock:mutex:held"));
    let grant = guard.grant_id();
    let forcing = tokio::spawn(async move { operator.mutex("held").force_release(grant, "it hangs").await });
    deletion.applied(ms(15_000)).await.unwrap();
    guard.extend(TTL).await.unwrap();
    deletion.heal().unwrap();
    assert!(forcing.await.unwrap().unwrap(), "the grant was there");
    assert!(server.client().get("lock:mutex:held").await.unwrap().is_none());
    let _ = guard.extend(TTL).await.unwrap_err();
    assert!(matches!(guard.lost().await, LossReason::ForceReleased { .. }));
}

/// One of two permits changes on its way, as by a renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_force_leaves_no_permit_that_was_renewed_meanwhile() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, operator) = operator(&server).await;
    let permits = client(&server, RestartPolicy::Off).await.semaphore("held", 2).with_ttl(TTL);
    let permits = permits.acquire_many(2).await.unwrap();
    let deletion = link.inject(kept("md lock:semaphore:held"));
    let grant = permits.grant_id();
    let forcing = tokio::spawn(async move { operator.semaphore("held", 2).force_release(grant, "it hangs").await });
    deletion.applied(ms(15_000)).await.unwrap();
    server.client().command("ma lock:semaphore:held:1 D0").await.unwrap();
    deletion.heal().unwrap();
    assert!(forcing.await.unwrap().unwrap(), "the grant was there");
    assert!(server.client().get("lock:semaphore:held:1").await.unwrap().is_none(), "a permit was left");
}

/// Each deletion meets one more renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_force_that_comes_too_late_each_time_says_so_and_leaves_no_reason() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, operator) = operator(&server).await;
    let guard = client(&server, RestartPolicy::Off).await.mutex("held").with_ttl(TTL).lock().await.unwrap();
    let number = server.client().get("lock:mutex:held").await.unwrap().unwrap();
    let reason = format!("lock:forced:{}", String::from_utf8(number).unwrap());
    let (grant, mut deletion) = (guard.grant_id(), link.inject(kept("md lock:mutex:held")));
    let mut forcing = tokio::spawn(async move { operator.mutex("held").force_release(grant, "it hangs").await });
    let mut told = None;
    for _ in 0..MORE {
        tokio::select! {
            biased;
            applied = deletion.applied(ms(15_000)) => drop(applied.unwrap()),
            forced = &mut forcing => {
                told = Some(forced.unwrap());
                break;
            }
        }
        guard.extend(TTL).await.unwrap();
        let next = link.inject(kept("md lock:mutex:held"));
        std::mem::replace(&mut deletion, next).heal().unwrap();
    }
    let error = told.expect("it tries for ever").expect_err("a grant that is there was not released");
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Unavailable, true), "{error}");
    assert!(server.client().get(&reason).await.unwrap().is_none(), "a later loss would be told as this one");
    guard.release().await.unwrap();
}

/// The holder releases the lock before the deletion arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_force_of_what_was_released_meanwhile_is_none() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, operator) = operator(&server).await;
    let guard = client(&server, RestartPolicy::Off).await.mutex("held").with_ttl(TTL).lock().await.unwrap();
    let (grant, deletion) = (guard.grant_id(), link.inject(kept("md lock:mutex:held")));
    let forcing = tokio::spawn(async move { operator.mutex("held").force_release(grant, "it hangs").await });
    deletion.applied(ms(15_000)).await.unwrap();
    guard.release().await.unwrap();
    deletion.heal().unwrap();
    assert!(!forcing.await.unwrap().unwrap());
}

/// It has the lock as a reader, in another item, when the deletion arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_force_finds_a_writer_that_became_a_reader_meanwhile() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, operator) = operator(&server).await;
    let guard = client(&server, RestartPolicy::Off).await.rwlock("held").with_ttl(TTL).write().await.unwrap();
    let (grant, deletion) = (guard.grant_id(), link.inject(kept("md lock:rwlock:held")));
    let forcing = tokio::spawn(async move { operator.rwlock("held").force_release(grant, "it hangs").await });
    deletion.applied(ms(15_000)).await.unwrap();
    let reader = guard.downgrade().await.unwrap();
    deletion.heal().unwrap();
    assert!(forcing.await.unwrap().unwrap(), "the grant was there");
    let _ = reader.extend(TTL).await.unwrap_err();
    assert!(matches!(reader.lost().await, LossReason::ForceReleased { .. }));
}
