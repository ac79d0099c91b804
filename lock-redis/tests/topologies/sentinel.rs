//! Behind sentinels.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ClientOptions, ErrorKind, Guarantee, LossReason, MutexGuard, RedisConfig, RedisLocks};
use lock_testkit_servers::redis::{RedisServer, SentinelDeployment};
use tokio::task::JoinSet;

use crate::load::{Load, Look, TASKS};
use crate::support::{
    FAILOVER, PROMPTLY, about_time, configured, connect, eventually, installed, ms, obtain, say, soon, with_ttl,
};

const HOLDERS: usize = 20;
const TTL: Duration = Duration::from_secs(15);

/// Locks that are held, and have reached every replica.
async fn held(locks: &RedisLocks, master: &RedisServer) -> Vec<MutexGuard> {
    let names = (0..HOLDERS).map(|i| locks.mutex(format!("held/{i}")));
    let guards = join_all(names.map(|mutex| async move { mutex.lock().await.unwrap() })).await;
    // What an operator cannot know either: that the replicas have it.
    assert_eq!(say(master, "WAIT 2 5000").await.as_int(), Some(2));
    guards
}

/// None of them is lost for longer than a lease: only renewals at the new master can carry it there.
async fn outlive_their_leases(guards: &[MutexGuard]) {
    let mut lost: Vec<_> = guards.iter().map(|guard| guard.lost()).collect();
    let first = tokio::time::timeout(TTL + ms(1500), futures_util::future::select_all(&mut lost)).await;
    assert!(first.is_err(), "lost: {:?}", first.map(|(reason, ..)| reason));
    assert!(guards.iter().all(|guard| guard.is_held()));
}

/// Somebody else's wait for each of these ends with their release.
async fn are_handed_over(guards: Vec<MutexGuard>, next: &RedisLocks) -> Duration {
    let began = Instant::now();
    let waiting: Vec<_> = (0..guards.len())
        .map(|i| {
            let next = next.clone();
            tokio::spawn(async move { obtain(&next, &format!("held/{i}"), PROMPTLY).await })
        })
        .collect();
    for guard in guards {
        guard.release().await.unwrap();
    }
    for waiter in waiting {
        soon("the next one is granted", PROMPTLY, waiter).await.unwrap().release().await.unwrap();
    }
    began.elapsed()
}

#[test]
fn a_planned_failover_loses_no_lock_that_was_replicated() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let (locks, other) = (with_ttl(deployment.url(), TTL).await, connect(deployment.url()).await);
        let old = deployment.master().await.unwrap();
        let guards = held(&locks, old).await;
        let load = Load::begin(&[locks.clone(), other.clone()], 40, Look::Inside);
        load.goes_on(2).await;
        load.end().await;
        let new = deployment.fail_over().await.unwrap();
        assert_ne!(new.address(), old.address());
        outlive_their_leases(&guards).await;
        let held = say(new, "KEYS lock:mutex:{held/*}").await.into_parts().len();
        assert_eq!(held, HOLDERS, "the new master has them");
        let took = are_handed_over(guards, &other).await;
        println!("hand-overs after a planned failover took {took:?}");
    });
}

#[test]
fn a_killed_master_loses_no_lock_that_was_replicated_and_its_return_changes_nothing() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let (locks, other) = (with_ttl(deployment.url(), TTL).await, connect(deployment.url()).await);
        let old = deployment.master().await.unwrap();
        let guards = held(&locks, old).await;
        let waiter = {
            let other = other.clone();
            tokio::spawn(async move { obtain(&other, "held/0", FAILOVER).await })
        };
        old.kill().unwrap();
        let began = Instant::now();
        let again = tokio::spawn({
            let locks = locks.clone();
            async move {
                obtain(&locks, "fresh", FAILOVER).await.release().await.unwrap();
                began.elapsed()
            }
        });
        deployment.until_another_master(old).await.unwrap();
        println!("locks are granted again after {:?}", again.await.unwrap());
        outlive_their_leases(&guards).await;
        // It comes back as a master, and is one for some seconds; nobody is to follow it.
        old.restart().await.unwrap();
        outlive_their_leases(&guards).await;
        let mut guards = guards;
        guards.remove(0).release().await.unwrap();
        soon("the waiter of before is granted", PROMPTLY, waiter).await.unwrap().release().await.unwrap();
        join_all(guards.into_iter().map(|guard| async { guard.release().await.unwrap() })).await;
    });
}

#[test]
fn a_lock_that_the_new_master_does_not_know_is_lost_at_the_switch_and_not_at_the_next_renewal() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let locks = with_ttl(deployment.url(), Duration::from_secs(300)).await;
        let old = deployment.master().await.unwrap();
        let guards = held(&locks, old).await;
        for replica in deployment.nodes().iter().filter(|node| node.address() != old.address()) {
            assert!(say(replica, "CONFIG SET replica-read-only no").await.is_ok());
            assert_eq!(say(replica, "DEL lock:mutex:{held/0}").await.as_int(), Some(1));
        }
        let lost = guards[0].lost();
        deployment.fail_over().await.unwrap();
        // The next renewal is due after 100 s.
        assert_eq!(soon("the holder is told", PROMPTLY * 2, lost).await, LossReason::Taken);
        assert!(!guards[0].is_held() && guards[1..].iter().all(|guard| guard.is_held()));
        for guard in guards.into_iter().skip(1) {
            guard.release().await.unwrap();
        }
    });
}

#[test]
fn failovers_under_load_let_no_call_hang_and_no_reply_go_astray() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let clients = [connect(deployment.url()).await, connect(deployment.url()).await];
        let load = Load::begin(&clients, TASKS, Look::Away);
        load.goes_on(2).await;
        deployment.fail_over().await.unwrap();
        load.nobody_is_stuck().await;
        deployment.until_ready().await.unwrap();
        let old = deployment.master().await.unwrap();
        old.kill().unwrap();
        deployment.until_another_master(old).await.unwrap();
        load.nobody_is_stuck().await;
        load.end().await;
    });
}

/// More tries than may be on their way to one server, which stands still: the others are not tied to it.
#[test]
fn those_that_wait_for_their_turn_go_to_the_new_master() {
    const TRIES: usize = 3000;
    const ON_THEIR_WAY: usize = 1024;
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let mut options = ClientOptions::default();
        (options.op_timeout, options.patience) = (FAILOVER, FAILOVER * 2);
        let locks = configured(RedisConfig::new(deployment.url()).with_client(options)).await.unwrap();
        obtain(&locks, "first", PROMPTLY).await.release().await.unwrap();
        let old = deployment.master().await.unwrap();
        old.stop().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let mut tries = JoinSet::new();
        for name in 0..TRIES {
            let (mutex, begun) = (locks.mutex(format!("try/{name}")), begun.clone());
            tries.spawn(async move {
                let mut tried = pin!(mutex.try_lock());
                let early = poll_fn(|context| Poll::Ready(tried.as_mut().poll(context))).await;
                assert!(early.is_pending(), "answered by a server that stands still");
                begun.fetch_add(1, Ordering::Relaxed);
                tried.await.unwrap().is_some()
            });
        }
        eventually("all have begun", PROMPTLY, async || (begun.load(Ordering::Relaxed) == TRIES).then_some(())).await;
        deployment.fail_over().await.unwrap();
        for _ in ON_THEIR_WAY..TRIES {
            let granted = soon("those that were not sent are granted", PROMPTLY, tries.join_next()).await;
            assert!(granted.unwrap().unwrap(), "a free lock was not granted");
        }
        old.cont().unwrap();
    });
}

#[test]
fn sentinels_that_are_down_are_done_without_and_watched_again() {
    about_time(async || {
        let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
        let [first, second, third] = deployment.sentinels() else { panic!("three sentinels") };
        first.kill().unwrap();
        let locks = connect(deployment.url()).await;
        obtain(&locks, "few", PROMPTLY).await.release().await.unwrap();
        first.restart().await.unwrap();
        deployment.until_ready().await.unwrap();
        let old = deployment.master().await.unwrap();
        let new = deployment.fail_over().await.unwrap();
        assert_ne!(old.address(), new.address());
        let at_the_new_one = async || {
            let held = obtain(&locks, "few", PROMPTLY).await;
            let token = held.fencing_token().unwrap().to_string();
            match held.release().await {
                // The old master has granted it, the new one was asked to release it.
                Err(error) if error.kind() == ErrorKind::NotHeld => return None,
                released => released.unwrap(),
            }
            (say(new, "GET lock:tokens").await.as_text() == Some(token)).then_some(())
        };
        eventually("the client is at the new master", PROMPTLY, at_the_new_one).await;
        for sentinel in [first, second, third] {
            sentinel.kill().unwrap();
        }
        obtain(&locks, "few", PROMPTLY).await.release().await.unwrap();
        let nobody = RedisLocks::connect(deployment.url()).await.unwrap_err();
        assert_eq!((nobody.kind(), nobody.is_definite()), (ErrorKind::Unavailable, true), "{nobody:?}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_sentinel_knows_is_an_error_that_says_so() {
    let Some(deployment) = installed(SentinelDeployment::start_own().await) else { return };
    let url = deployment.url().replace("mymaster", "nobody");
    let error = RedisLocks::connect(url).await.unwrap_err();
    assert!(error.to_string().contains("no sentinel knows a master"), "{error}");
    let locks = RedisLocks::connect_with(RedisConfig::new(deployment.url())).await.unwrap();
    assert!(locks.require(&[Guarantee::ExclusionAcrossFailover]).is_err());
    assert!(locks.require(&[Guarantee::FencingAcrossFailover]).is_err());
}
