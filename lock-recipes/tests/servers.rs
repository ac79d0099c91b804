//! The recipes on real servers: two clients each, as two processes.

#![cfg(test)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::{ClientOptions, Error, Guarantee, Locks, Support};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_recipes::{Election, Once, OnceError, Outcome};
use lock_redis::RedisLocks;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::testing::{eventually, installed};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{ZkConfig, ZkLocks};

const PATIENCE: Duration = Duration::from_secs(30);

async fn connect_memcached(url: &str) -> Result<Locks, Error> {
    let mut config = MemcachedConfig::new(url).with_longest_lease(Duration::from_secs(2));
    config.client.lease.ttl = Duration::from_secs(2);
    Ok(MemcachedLocks::connect_with(config).await?.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let client = || async { RedisLocks::connect(server.url()).await.unwrap().into() };
    recipes(client().await, client().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let client = || async { ZkLocks::connect(server.url()).await.unwrap().into() };
    recipes(client().await, client().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_memcached() {
    let Some(server) = installed(MemcachedServer::start_with(&MemcachedOptions::new()).await) else { return };
    let client = || async { connect_memcached(server.url()).await.unwrap() };
    let first = client().await;
    // The prefix is new: nothing is granted at first.
    let open = first.mutex("first").try_lock_for(PATIENCE).await.unwrap().unwrap();
    open.release().await.unwrap();
    recipes(first, client().await).await;
}

async fn recipes(a: Locks, b: Locks) {
    a.require(&[Guarantee::Fencing]).unwrap();
    // With a reservation on memcached, about holders that take a recipe's mutex without the record.
    assert_ne!(a.guarantees().of(Guarantee::Record), Support::No);
    each_slot_runs_once(&a, &b).await;
    a_job_that_was_dropped_is_run_again(&a, &b).await;
    a_lock_is_kept_for_a_while(&a, &b).await;
    one_leads_after_the_other(&a, &b).await;
    for locks in [a, b] {
        locks.close().await.unwrap();
    }
}

async fn each_slot_runs_once(a: &Locks, b: &Locks) {
    let once = [a, b].map(|locks| Once::new(locks.recorded("job").unwrap()));
    let ran = AtomicU64::new(0);
    for slot in 0..100 {
        for process in &once {
            let outcome = process.run(slot, |_| async { ran.fetch_add(1, Ordering::SeqCst) }).await.unwrap();
            assert!(matches!(outcome, Outcome::Ran(_) | Outcome::Skipped { .. }), "slot {slot}: {outcome:?}");
        }
    }
    assert_eq!(ran.into_inner(), 100);
}

async fn a_lock_is_kept_for_a_while(a: &Locks, b: &Locks) {
    let least = Duration::from_secs(1);
    let kept = Once::new(a.recorded("kept").unwrap()).with_at_least(least).unwrap();
    let began = Instant::now();
    assert_eq!(kept.run(1, |_| async { 1 }).await.unwrap(), Outcome::Ran(1));
    let next = Once::new(b.recorded("kept").unwrap()).with_wait(PATIENCE);
    let after = next.run(2, |_| async { began.elapsed() }).await.unwrap().ran().expect("nobody else wants it");
    // The clocks of two machines differ by a little.
    assert!(after >= least.mul_f64(0.99), "run after {after:?}");
}

async fn a_job_that_was_dropped_is_run_again(a: &Locks, b: &Locks) {
    let dropped = Once::new(a.recorded("dropped job").unwrap());
    let (begun, mut began) = tokio::sync::mpsc::channel(1);
    let job = async |_| {
        begun.send(()).await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = dropped.run(1, job) => panic!("{ended:?}"),
        _ = began.recv() => {}
    }
    let most = Once::new(b.recorded("dropped job").unwrap()).with_wait(PATIENCE);
    let skipped = most.run(1, |_| async {}).await.unwrap();
    assert!(matches!(skipped, Outcome::Skipped { .. }), "{skipped:?}");
    let least = most.with_attempts(lock_recipes::Attempts::AtLeastOnce);
    assert_eq!(least.run(1, |_| async { 7 }).await.unwrap(), Outcome::Ran(7));
    let again: Result<Outcome<()>, OnceError<()>> = least.run(1, |_| async {}).await;
    assert!(matches!(again, Ok(Outcome::Skipped { .. })), "{again:?}");
}

/// The outage begins before the slot's time, and is longer than the request that reads the record may take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_may_wait_outlasts_an_outage_at_its_slots_time() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let locks = RedisLocks::connect(&format!("redis://{}", link.address())).await.unwrap();
    let once = Once::new(locks.recorded("job").unwrap()).with_wait(PATIENCE);
    let away = link.inject(LinkFault::new(Toxic::Hold, Direction::Both));
    let mut run = std::pin::pin!(once.run(1, |_| async {}));
    let outage = ClientOptions::default().op_timeout * 2;
    let early = tokio::time::timeout(outage, run.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    away.heal().unwrap();
    assert_eq!(run.await.unwrap(), Outcome::Ran(()));
}

/// Sessions keep a lock for less than its TTL at a time, with a part of that left before each renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_ttl_is_longer_than_its_session_leads_on() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let config = ZkConfig::new(server.url())
        .with_session_timeout(Duration::from_secs(4))
        .with_tick_time(Duration::from_millis(200));
    let locks: Locks = ZkLocks::connect_with(config).await.unwrap().into();
    let election = Election::new(locks.recorded("long").unwrap().with_ttl(Duration::from_secs(60)));
    let leadership = election.campaign().await.unwrap();
    assert!(leadership.is_leading(), "it never led");
    // For longer than the session, which is renewed meanwhile.
    let ended = tokio::time::timeout(Duration::from_secs(6), leadership.ended()).await;
    assert!(ended.is_err() && leadership.is_leading(), "it leads no more although everything is well");
    leadership.step_down().await.unwrap();
}

/// A lock that is handed over is kept for a short time at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_follows_one_that_has_crashed_leads_on() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let ttl = Duration::from_secs(30);
    let (a, b) = (RedisLocks::connect(server.url()).await.unwrap(), RedisLocks::connect(server.url()).await.unwrap());
    let lasts = lock_core::LeaseOptions::new(Duration::from_secs(1)).with_auto_renew(false);
    let crashed = a.mutex("crashed").with_lease(lasts).lock().await.unwrap();
    let locks: Locks = b.into();
    let election = Election::new(locks.recorded("crashed").unwrap().with_ttl(ttl));
    let leadership = tokio::time::timeout(PATIENCE, election.campaign()).await.unwrap().unwrap();
    assert!(!crashed.is_held());
    assert!(leadership.is_leading(), "it never led");
    let ended = tokio::time::timeout(Duration::from_secs(4), leadership.ended()).await;
    assert!(ended.is_err() && leadership.is_leading(), "it leads no more although everything is well");
    leadership.step_down().await.unwrap();
}

async fn one_leads_after_the_other(a: &Locks, b: &Locks) {
    let [a, b] = [(a, "a:1"), (b, "b:2")]
        .map(|(locks, address)| Election::new(locks.recorded("leader").unwrap()).with_address(address));
    let first = a.campaign().await.unwrap();
    let next = tokio::spawn({
        let b = b.clone();
        async move { b.campaign().await }
    });
    // Some backends describe a holder a moment after its grant.
    eventually("it is found", PATIENCE, async || {
        b.leader().await.unwrap().is_some_and(|leader| leader.address == "a:1" && leader.term == first.number())
    })
    .await;
    assert!(a.is_leading() && !b.is_leading());
    let term = first.number();
    first.step_down().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert!(next.number() > term && b.is_leading() && !a.is_leading());
    next.step_down().await.unwrap();
    assert_eq!(a.leader().await.unwrap(), None);
}
