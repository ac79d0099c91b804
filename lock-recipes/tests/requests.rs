//! The requests that the recipes cost, counted on their way to a server.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{LeaseOptions, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_recipes::{Election, Once, Outcome};
use lock_redis::RedisLocks;
use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit::testing::installed;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::ZkLocks;

const PATIENCE: Duration = Duration::from_secs(30);
/// A lease that is not renewed while somebody looks. On memcached the first grant waits for the longest lease, so it is shorter there.
const TTL: Duration = Duration::from_secs(60);

/// A server with a proxy before it, and how to connect through the proxy.
fn through(url: &str, protocol: Protocol) -> (Proxy, String) {
    let server = url.split('/').nth(2).unwrap();
    let proxy = Proxy::to(server.to_owned(), protocol).unwrap();
    let url = url.replacen(server, &proxy.address(), 1);
    (proxy, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (proxy, url) = through(server.url(), Protocol::Resp);
    let locks = RedisLocks::connect(&url).await.unwrap().into();
    a_slot_that_is_done_costs_one_request(&locks, &proxy).await;
    a_held_leadership_costs_what_its_lock_costs(&locks, &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let (proxy, url) = through(server.url(), Protocol::ZooKeeper);
    let locks = ZkLocks::connect(&url).await.unwrap().into();
    a_slot_that_is_done_costs_one_request(&locks, &proxy).await;
    a_held_leadership_costs_what_its_lock_costs(&locks, &proxy).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memcached() {
    let Some(server) = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await) else { return };
    let (proxy, url) = through(server.url(), Protocol::Memcached);
    let ttl = Duration::from_secs(9);
    let mut config = MemcachedConfig::new(&url).with_longest_lease(ttl);
    config.client.lease = LeaseOptions::new(ttl);
    let locks: Locks = MemcachedLocks::connect_with(config).await.unwrap().into();
    // The prefix is new: nothing is granted at first.
    let open = locks.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap();
    open.release().await.unwrap();
    a_slot_that_is_done_costs_one_request(&locks, &proxy).await;
    a_held_leadership_costs_what_its_lock_costs_for(&locks, &proxy, ttl).await;
}

/// Sessions are kept alive meanwhile, so the fewest requests of several calls count.
async fn a_slot_that_is_done_costs_one_request(locks: &Locks, proxy: &Proxy) {
    let once = Once::new(locks.recorded("job").unwrap());
    assert_eq!(once.run(7, |_| async {}).await.unwrap(), Outcome::Ran(()));
    let mut fewest = u64::MAX;
    for slot in [7, 6, 7, 7] {
        let before = proxy.requests();
        assert!(matches!(once.run(slot, |_| async {}).await.unwrap(), Outcome::Skipped { .. }));
        fewest = fewest.min(proxy.requests() - before);
    }
    assert_eq!(fewest, 1, "the record is read, without the lock");
}

async fn a_held_leadership_costs_what_its_lock_costs(locks: &Locks, proxy: &Proxy) {
    a_held_leadership_costs_what_its_lock_costs_for(locks, proxy, TTL).await;
}

async fn a_held_leadership_costs_what_its_lock_costs_for(locks: &Locks, proxy: &Proxy, ttl: Duration) {
    let mutex = locks.mutex("plain").with_ttl(ttl).lock().await.unwrap();
    let plain = requests_in_a_while(proxy).await;
    mutex.release().await.unwrap();
    let election = Election::new(locks.recorded("leader").unwrap().with_ttl(ttl));
    let leadership = election.campaign().await.unwrap();
    let mut watch = election.watch();
    assert_eq!(watch.changed().await, Some(leadership.number()));
    let asked = Arc::new(AtomicU64::new(0));
    let asking = tokio::spawn({
        let (election, asked) = (election.clone(), asked.clone());
        async move {
            loop {
                assert!(election.is_leading());
                asked.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }
    });
    let watching = tokio::spawn(async move { watch.changed().await });
    let held = requests_in_a_while(proxy).await;
    asking.abort();
    watching.abort();
    leadership.step_down().await.unwrap();
    assert!(asked.load(Ordering::SeqCst) > 100, "it was hardly asked");
    assert!(held <= plain + 1, "{held} requests, {plain} of a lock alone");
}

/// Requests in 3 s. One more or less may be a renewal, or of the connection.
async fn requests_in_a_while(proxy: &Proxy) -> u64 {
    // What follows an acquisition is sent by then.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = proxy.requests();
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.requests() - before
}
