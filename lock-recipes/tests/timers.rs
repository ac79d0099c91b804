//! Two processes with timers 300 ms apart, and a job of 10 ms, on every backend: by the clock of the machine, as a user has it.

#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::memory::MemoryStore;
use lock_core::{LeaseOptions, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_recipes::{Once, Outcome};
use lock_redis::RedisLocks;
use lock_testkit::testing::installed;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::ZkLocks;
use tokio::time::{Instant, sleep, sleep_until};

/// Jobs beside each other, so that a thousand slots take seconds.
const JOBS: u64 = 50;
const SLOTS: u64 = 20;
const PERIOD: Duration = Duration::from_millis(400);
const APART: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(30);
const LENGTH: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory() {
    let store = MemoryStore::new();
    each_of_a_thousand_slots_runs_once(store.connect().into(), store.connect().into()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let client = || async { RedisLocks::connect(server.url()).await.unwrap().into() };
    each_of_a_thousand_slots_runs_once(client().await, client().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let client = || async { ZkLocks::connect(server.url()).await.unwrap().into() };
    each_of_a_thousand_slots_runs_once(client().await, client().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memcached() {
    let Some(server) = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await) else { return };
    let client = || async {
        let ttl = Duration::from_secs(2);
        let mut config = MemcachedConfig::new(server.url()).with_longest_lease(ttl);
        config.client.lease = LeaseOptions::new(ttl);
        Locks::from(MemcachedLocks::connect_with(config).await.unwrap())
    };
    let first = client().await;
    // The prefix is new: nothing is granted at first.
    let open = first.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap();
    open.release().await.unwrap();
    each_of_a_thousand_slots_runs_once(first, client().await).await;
}

async fn each_of_a_thousand_slots_runs_once(a: Locks, b: Locks) {
    let runs: Arc<Vec<AtomicU64>> = Arc::new((0..JOBS * SLOTS).map(|_| AtomicU64::new(0)).collect());
    let begin = Instant::now() + PERIOD;
    let mut timers = Vec::new();
    for (locks, late) in [(&a, Duration::ZERO), (&b, APART)] {
        for job in 0..JOBS {
            // Where a machine is too slow for these timers, one process is at a slot when the next one is due.
            let once = Once::new(locks.recorded(format!("job {job}")).unwrap()).with_wait(PATIENCE);
            let runs = runs.clone();
            timers.push(tokio::spawn(async move {
                for (slot, due) in (0..SLOTS).zip(0..) {
                    sleep_until(begin + PERIOD * due + late).await;
                    let run = &runs[usize::try_from(job * SLOTS + slot).unwrap()];
                    let outcome = once.run(slot, |_| async {
                        run.fetch_add(1, Ordering::SeqCst);
                        sleep(LENGTH).await;
                    });
                    let outcome = outcome.await.unwrap();
                    assert!(!matches!(outcome, Outcome::Ran(())) || run.load(Ordering::SeqCst) == 1, "slot {slot}");
                }
            }));
        }
    }
    for timer in timers {
        timer.await.unwrap();
    }
    let count = |wanted: fn(u64) -> bool| runs.iter().filter(|runs| wanted(runs.load(Ordering::SeqCst))).count();
    let (never, again) = (count(|runs| runs == 0), count(|runs| runs > 1));
    assert_eq!((never, again), (0, 0), "of {} slots, never and more than once", runs.len());
}
