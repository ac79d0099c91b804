//! Servers and clients that are set up in ways that cannot work, and are told so.

use lock_memcached::{ErrorKind, Guarantee, LockName, Locks, MemcachedLocks, Owner, RestartPolicy};
use lock_testkit::testing::{about_time, renewed};
use lock_testkit_servers::memcached::MemcachedOptions;

use crate::support::{LEASE, client, config, eventually, open, opened, pass, server};

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
    let error = MemcachedLocks::connect_with(config(&server).with_refuse_eviction(true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("-M"), "{error}");
    let locks = MemcachedLocks::connect_with(config(&server)).await.unwrap();
    let error = locks.guarantees().require(&[Guarantee::ExclusionAcrossRestart]).unwrap_err().to_string();
    assert!(error.contains("evicts"), "{error}");
}

/// Without an epoch there are no tokens, which tell a late holder.
#[tokio::test]
async fn a_client_without_protection_across_restarts_keeps_no_records() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    for refused in [locks.recorded("a").unwrap_err(), Locks::from(&locks).recorded("a").unwrap_err()] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    }
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some(), "it has no mutex either");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_lives_on_with_each_permit_that_is_taken() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LEASE * 20);
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let permits = locks.semaphore("a", 1);
    let left = async || {
        let told = server.client().command("mg lock:semaphore:a:limit t").await.unwrap();
        told.strip_prefix("HD t").and_then(|left| left.parse::<u64>().ok())
    };
    permits.acquire().await.unwrap().release().await.unwrap();
    pass(LEASE * 3).await;
    let before = left().await.unwrap();
    let _held = permits.acquire().await.unwrap();
    assert!(left().await.unwrap() > before, "the limit may be forgotten while its permit is held");
}

/// It looks like any foreign key. Nobody enters beside anybody by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_key_that_is_another_prefix_s_own_is_that_lock_or_is_told() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = open(&server).await;
    let other = opened(config(&server).with_prefix("other")).await;
    let at = |key: &str| locks.mutex(LockName::from_key(key).unwrap());
    let held = other.mutex("a").lock().await.unwrap();
    assert!(at("other:mutex:a").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    let held = at("other:mutex:a").lock().await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    let limit = at("other:semaphore:s:limit").lock().await.unwrap();
    let error = other.semaphore("s", 2).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    limit.release().await.unwrap();
    other.semaphore("s", 2).try_acquire().await.unwrap().expect("a permit was left behind").release().await.unwrap();
    // A lock's number there may be read as an open epoch.
    for refused in ["lock:mutex:a", "other:epoch"] {
        let error = at(refused).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

/// A connection of one runtime is not used on another: the first may stand still.
#[test]
fn a_second_runtime_has_connections_of_its_own_and_tells_who_holds() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let Some(server) = first.block_on(server(MemcachedOptions::new())) else { return };
    let locks = first.block_on(client(&server, RestartPolicy::Off));
    first.block_on(async { locks.mutex("a").lock().await.unwrap().release().await.unwrap() });
    second.block_on(async {
        for name in 0..3 {
            locks.mutex(format!("{name}")).try_lock().await.unwrap().unwrap().release().await.unwrap();
        }
    });
    drop(first);
    second.block_on(async {
        let held = locks.mutex("b").with_ttl(LEASE * 60).lock().await.unwrap();
        eventually("its holder is told", async || {
            locks.mutex("b").inspect().await.unwrap().holders.iter().any(|holder| holder.grant == Some(held.grant_id()))
        })
        .await;
    });
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
    let config = || config(&server).with_restart_policy(RestartPolicy::Off);
    let many = MemcachedLocks::connect_with(config()).await.unwrap();
    let few = MemcachedLocks::connect_with(config().with_readers(2)).await.unwrap();
    many.rwlock("a").read().await.unwrap().release().await.unwrap();
    for error in [few.rwlock("a").try_read().await.unwrap_err(), few.rwlock("a").write().await.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("64") && error.to_string().contains('2'), "{error}");
    }
    many.rwlock("a").try_write().await.unwrap().expect("a refused claim was left behind").release().await.unwrap();
}

/// Readers are in slots beyond those of the operator's client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_who_was_set_up_for_fewer_readers_sees_all_of_them() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let config = || config(&server).with_restart_policy(RestartPolicy::Off);
    let services = MemcachedLocks::connect_with(config().with_readers(1000)).await.unwrap();
    let operator = MemcachedLocks::connect_with(config().with_readers(1)).await.unwrap();
    let (first, second) = (services.rwlock("a").read().await.unwrap(), services.rwlock("a").read().await.unwrap());
    assert_eq!(operator.rwlock("a").inspect().await.unwrap().holders.len(), 2);
    for guard in [&first, &second] {
        assert!(operator.rwlock("a").force_release(guard.grant_id(), "it hangs").await.unwrap());
    }
    services.rwlock("a").try_write().await.unwrap().expect("nobody reads any more").release().await.unwrap();
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

/// Of one grant the strongest wish of all levels counts: with a longer TTL than the longest the outer one could not be renewed.
#[test]
fn a_nested_lease_above_the_longest_is_refused_and_the_outer_one_is_renewed_on() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let locks = opened(config(&server).with_longest_lease(LEASE * 2)).await;
        let (tree, me) = (locks.reentrant("a"), Owner::new());
        let outer = tree.clone().with_ttl(LEASE * 3 / 2).lock(&me).await.unwrap();
        let refused = tree.clone().with_ttl(LEASE * 3).lock(&me).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
        assert_eq!(outer.depth(), 1);
        renewed(&outer, 5).await;
        let inner = tree.with_ttl(LEASE * 2).lock(&me).await.unwrap();
        renewed(&outer, 5).await;
        inner.release().await.unwrap();
        outer.release().await.unwrap();
    });
}

#[tokio::test]
async fn nobody_there_is_unavailable() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    server.kill().unwrap();
    let error = MemcachedLocks::connect_with(config(&server)).await.unwrap_err();
    assert_eq!((error.kind(), error.server()), (ErrorKind::Unavailable, Some(server.address())));
}
