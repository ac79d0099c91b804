//! The commands of `docs/operations.md` for where no program of ours can be run, on real servers.

#![cfg(test)]

use std::time::Duration;

use lock_core::{GrantId, LeaseOptions, LockName, Locks, LossReason};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_redis::RedisLocks;
use lock_testkit::testing::{PROMPTLY, eventually, installed, soon};
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::resp::Value;
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
use lock_zk::ZkLocks;

/// Renewed often, so that a loss is told soon; and so long that nothing ends by itself.
const LEASE: Duration = Duration::from_secs(120);

fn lease() -> LeaseOptions {
    LeaseOptions::new(LEASE).with_renew_every(Duration::from_secs(1))
}

/// Returns a command as it stands on the page, without the quotes of a shell.
fn of_page(command: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(command), "not in docs/operations.md: {command}");
    command.replace('\'', "")
}

/// Types a command of the page.
async fn redis_cli(server: &RedisServer, command: &str, grant: GrantId) -> Value {
    let command = of_page(command).replace("GRANT", &grant.to_string());
    let words: Vec<_> = command.split(' ').skip(1).collect();
    server.client().unwrap().command(&words).await.unwrap()
}

#[tokio::test]
async fn a_mutex_on_redis_is_seen_and_freed() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (one, other) =
        (RedisLocks::connect(server.url()).await.unwrap(), RedisLocks::connect(server.url()).await.unwrap());
    let guard = one.mutex("orders/42").with_lease(lease()).lock().await.unwrap();
    let waits = tokio::spawn(async move { other.mutex("orders/42").lock().await });
    let queue = "redis-cli ZRANGE 'lock:mutex:{orders/42}:q' 0 -1";
    let queued = async || redis_cli(&server, queue, guard.grant_id()).await.into_parts().len() == 1;
    eventually("a waiter", PROMPTLY, queued).await;
    let held = redis_cli(&server, "redis-cli GET 'lock:mutex:{orders/42}'", guard.grant_id()).await;
    assert!(held.as_text().unwrap().starts_with(&guard.grant_id().to_string()), "{held:?}");
    redis_cli(&server, "redis-cli DEL 'lock:mutex:{orders/42}'", guard.grant_id()).await;
    assert!(soon("the next holder", PROMPTLY, waits).await.unwrap().unwrap().is_held());
    assert_eq!(soon("the loss", PROMPTLY, guard.lost()).await, LossReason::Taken);
}

#[tokio::test]
async fn one_grant_of_several_on_redis_is_seen_and_freed() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let locks = RedisLocks::connect(server.url()).await.unwrap();
    let api = locks.semaphore("api", 3).with_lease(lease());
    let (stuck, kept) = (api.acquire_many(2).await.unwrap(), api.acquire().await.unwrap());
    let grants = redis_cli(&server, "redis-cli HGETALL 'lock:semaphore:{api}'", stuck.grant_id()).await.into_parts();
    let grants: Vec<_> = grants.iter().filter_map(Value::as_text).collect();
    assert!(
        grants.contains(&stuck.grant_id().to_string()) && grants.iter().any(|it| it.contains(":P2/3:")),
        "{grants:?}"
    );
    let waits = tokio::spawn({
        let api = api.clone();
        async move { api.acquire_many(2).await }
    });
    let waiters = async || api.inspect().await.unwrap().waiter_count() == 1;
    eventually("a waiter", PROMPTLY, waiters).await;
    redis_cli(&server, "redis-cli HDEL 'lock:semaphore:{api}' GRANT '#next'", stuck.grant_id()).await;
    let next = soon("the next holder", PROMPTLY, waits).await.unwrap().unwrap();
    assert_eq!(soon("the loss", PROMPTLY, stuck.lost()).await, LossReason::Taken);
    assert!(kept.is_held() && next.is_held());
    assert_eq!(api.available().await.unwrap(), 0);
}

#[tokio::test]
async fn a_raw_key_on_redis_is_seen_and_freed() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (one, other) =
        (RedisLocks::connect(server.url()).await.unwrap(), RedisLocks::connect(server.url()).await.unwrap());
    let guard = one.mutex(LockName::from_key("jobs").unwrap()).with_lease(lease()).lock().await.unwrap();
    let waits = tokio::spawn(async move { other.mutex(LockName::from_key("jobs").unwrap()).lock().await });
    let queue = "redis-cli ZRANGE 'lock:key:{jobs}:jobs:q' 0 -1";
    let queued = async || redis_cli(&server, queue, guard.grant_id()).await.into_parts().len() == 1;
    eventually("a waiter", PROMPTLY, queued).await;
    let held = redis_cli(&server, "redis-cli GET jobs", guard.grant_id()).await;
    assert!(held.as_text().unwrap().starts_with(&guard.grant_id().to_string()), "{held:?}");
    redis_cli(&server, "redis-cli DEL jobs", guard.grant_id()).await;
    assert!(soon("the next holder", PROMPTLY, waits).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn grants_on_zookeeper_are_seen_and_freed() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (one, other) = (ZkLocks::connect(server.url()).await.unwrap(), ZkLocks::connect(server.url()).await.unwrap());
    let by_hand = ZooKeeperClient::connect(server.url()).await.unwrap();
    let ls = async |command: &str| {
        let path = of_page(command).split(' ').nth(2).unwrap().to_owned();
        let mut nodes = by_hand.children(&path).await.unwrap().unwrap_or_default();
        nodes.sort_by_key(|node| node[node.len() - 10..].to_owned());
        nodes.into_iter().map(|node| format!("{path}/{node}")).collect::<Vec<_>>()
    };
    let permits = one.semaphore("api", 3).acquire_many(2).await.unwrap();
    assert_eq!(ls("zkCli.sh ls /lock/semaphore/api/leases").await.len(), 2);
    permits.release().await.unwrap();
    let guard = one.mutex("orders/42").with_lease(lease()).lock().await.unwrap();
    let waits = tokio::spawn(async move { other.mutex("orders/42").lock().await });
    let queued = async || ls("zkCli.sh ls /lock/mutex/orders%2F42").await.len() == 2;
    eventually("a waiter", PROMPTLY, queued).await;
    let held = ls("zkCli.sh ls /lock/mutex/orders%2F42").await.swap_remove(0);
    assert!(held.replace('-', "").contains(&guard.grant_id().to_string()), "{held}");
    of_page("zkCli.sh delete /lock/mutex/orders%2F42/_c_");
    assert!(by_hand.delete(&held).await.unwrap());
    assert!(soon("the next holder", PROMPTLY, waits).await.unwrap().unwrap().is_held());
    assert_eq!(soon("the loss", PROMPTLY, guard.lost()).await, LossReason::Taken);
}

#[tokio::test]
async fn grants_on_memcached_are_seen_and_freed() {
    let Some(server) = installed(MemcachedServer::start_own().await) else { return };
    // Whoever need not wait for leases of before has its locks at once.
    let config = MemcachedConfig::new(server.url()).with_restart_policy(RestartPolicy::Off);
    let locks = Locks::from(MemcachedLocks::connect_with(config).await.unwrap());
    let get = async |command: &str| {
        let key = of_page(command).split(' ').nth(1).unwrap().to_owned();
        server.client().get(&key).await.unwrap().map(|value| String::from_utf8(value).unwrap())
    };
    let api = locks.semaphore("api", 1).unwrap();
    let permit = api.acquire().await.unwrap();
    assert_eq!(get("get lock:semaphore:api:limit").await.as_deref(), Some("1"));
    assert!(get("get lock:semaphore:api:0").await.is_some());
    permit.release().await.unwrap();
    let guard = locks.mutex("orders/42").with_lease(lease()).lock().await.unwrap();
    let number = get("get lock:mutex:orders/42").await.unwrap();
    of_page("get lock:holder:NUMBER");
    let described = async || server.client().get(&format!("lock:holder:{number}")).await.unwrap();
    assert!(!eventually("the holder's record", PROMPTLY, described).await.is_empty());
    of_page("delete lock:mutex:orders/42");
    assert!(server.client().delete("lock:mutex:orders/42").await.unwrap());
    assert_eq!(soon("the loss", PROMPTLY, guard.lost()).await, LossReason::Taken);
    assert!(locks.mutex("orders/42").try_lock().await.unwrap().is_some());
}
