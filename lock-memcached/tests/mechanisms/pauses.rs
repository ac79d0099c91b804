//! A server that stands still, and goes on with an old clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_memcached::{ErrorKind, LeaseOptions, MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit_servers::memcached::MemcachedOptions;
use tokio::task::JoinHandle;

use crate::support::{LEASE, config, eventually, far, open, opened, pass, server, settled_closed_connections};

/// Shorter than the margin of 5 s by which items outlive their leases.
const PAUSE: Duration = Duration::from_secs(4);
const HOLD: Duration = Duration::from_millis(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_of_the_server_under_contention_let_no_two_in() {
    nobody_enters_beside_another(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn twenty_four_pauses_let_no_two_in() {
    nobody_enters_beside_another(24).await;
}

/// Twelve clients contend for one lock, while the server stands still so often.
async fn nobody_enters_beside_another(pauses: usize) {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (inside, worst) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (grants, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let mut workers = Vec::new();
    for _ in 0..12 {
        let mutex = open(&server).await.mutex("held");
        let (inside, worst, grants, done) = (inside.clone(), worst.clone(), grants.clone(), done.clone());
        workers.push(tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                match mutex.try_lock_for(LEASE).await {
                    Ok(Some(guard)) => {
                        // Counted only while the guard says that it holds, before and after.
                        if guard.is_held() {
                            let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                            if guard.is_held() {
                                worst.fetch_max(now, Ordering::SeqCst);
                                grants.fetch_add(1, Ordering::SeqCst);
                            }
                            pass(HOLD).await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                        }
                        let _ = guard.release().await;
                    }
                    Ok(None) => {}
                    Err(error) => assert!(
                        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::TimedOut),
                        "{error}"
                    ),
                }
            }
        }));
    }
    for _ in 0..pauses {
        let before = grants.load(Ordering::SeqCst);
        eventually("locks are granted", async || grants.load(Ordering::SeqCst) > before + 10).await;
        server.stop().unwrap();
        pass(PAUSE).await;
        server.cont().unwrap();
    }
    let before = grants.load(Ordering::SeqCst);
    eventually("locks are granted at last", async || grants.load(Ordering::SeqCst) > before + 10).await;
    done.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(worst.load(Ordering::SeqCst), 1, "so many were inside at once");
    println!("{pauses} pauses of {PAUSE:?}, {} grants: never two inside", grants.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_a_frozen_server_carries_out_late_is_undone() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = open(&server).await;
    server.stop().unwrap();
    let error = locks.mutex("held").try_lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Indeterminate | ErrorKind::Unavailable), "{error}");
    server.cont().unwrap();
    // Undone in the background, or never carried out; by itself it ends within six seconds.
    eventually("the lock is free", async || matches!(locks.mutex("held").try_lock().await, Ok(Some(_)))).await;
}

/// A claim at the beginning of such a pause counts no more, one at its end does.
const THREE_SECONDS: Duration = Duration::from_secs(3);
/// So many phases of the server's ticks within its seconds are tried.
const PHASES: u32 = 25;
/// In the last part of the pause a lock is claimed so often; a claim has a connection for itself until the pause is over.
const LAST_PART: Duration = Duration::from_millis(1000);
const CLAIM_EVERY: Duration = Duration::from_millis(40);
const CONNECTIONS: u32 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_granted_a_lock_after_a_pause_has_it_alone() {
    // Late ticks are the worst ones.
    let rounds = join_all((0..4).map(|part| holders_alone_after_pauses(PHASES - 8 + part * 2, 1))).await;
    println!("{} grants after pauses, none beside another", rounds.into_iter().sum::<u32>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes"]
async fn two_hundred_pauses_of_three_seconds_at_every_phase_let_no_two_in() {
    let rounds = join_all((0..8).map(|_| holders_alone_after_pauses(0, PHASES))).await;
    println!("{} grants after 200 pauses, none beside another", rounds.into_iter().sum::<u32>());
}

/// A server of its own stands still for three seconds at so many phases. Meanwhile a lock after the other is claimed;
/// whoever is granted one afterwards has it alone, while another client tries all the time. Says how many were granted.
async fn holders_alone_after_pauses(first: u32, many: u32) -> u32 {
    let Some(server) = server(MemcachedOptions::new()).await else { return 0 };
    let mut config = config(&server);
    config.client.lease = LeaseOptions::new(LEASE).with_auto_renew(false);
    config.client.op_timeout = ms(6000);
    let (one, other) = (opened(config.clone()).await, opened(config).await);
    let mut granted = 0;
    for phase in first..first + many {
        let phase = Duration::from_secs(1) / PHASES * phase;
        // When it goes on it ticks at once, and every second from then on.
        server.stop().unwrap();
        pass(ms(1100)).await;
        until_phase(phase).await;
        server.cont().unwrap();
        // It is looked at when it ticks, and at all other times.
        let (mutex, began) = (one.mutex("looks"), Instant::now());
        while began.elapsed() < ms(2000) {
            drop(mutex.try_lock().await);
            pass(ms(5)).await;
        }
        // Over a new connection nobody meets the old clock: the thread that accepts it is the one that ticks.
        join_all((0..CONNECTIONS).map(|number| alone(&one, &other, &format!("{number}")))).await;
        until_phase(phase + ms(100)).await;
        server.stop().unwrap();
        let (mut claims, began) = (Vec::new(), Instant::now());
        pass(THREE_SECONDS - LAST_PART).await;
        while began.elapsed() < THREE_SECONDS {
            claims.push(alone(&one, &other, &format!("{phase:?}/{}", claims.len())));
            pass(CLAIM_EVERY).await;
        }
        until_phase(ms(20)).await;
        server.cont().unwrap();
        granted += join_all(claims).await.into_iter().map(Result::unwrap).sum::<u32>();
    }
    granted
}

/// One claims a lock, and if it is granted, the other one tries all the time while the first one believes.
fn alone(one: &MemcachedLocks, other: &MemcachedLocks, name: &str) -> JoinHandle<u32> {
    let (ours, theirs) = (one.mutex(name), other.mutex(name));
    tokio::spawn(async move {
        let Ok(Some(guard)) = ours.try_lock().await else { return 0 };
        while guard.is_held() {
            let granted = theirs.try_lock().await;
            let both = guard.is_held() && granted.is_ok_and(|next| next.is_some_and(|next| next.is_held()));
            assert!(!both, "two holders, the first one for {:?} more", guard.remaining());
        }
        1
    })
}

/// Longer than the item of a lock that is left for a second outlasts that.
const LONG_PAUSE: Duration = Duration::from_secs(7);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_left_at_the_end_of_a_pause_stays_for_its_time_or_is_told_to_be_lost() {
    let rounds = join_all((0..4).map(|part| left_at_the_end_of_a_pause(PHASES - 8 + part * 2))).await;
    println!(
        "{} locks were left in a pause, none was free before its time without a word",
        rounds.into_iter().sum::<usize>()
    );
}

/// A server of its own stands still, and locks are left in the last part of that, each over a connection that is open already. Whoever
/// tries all the time is granted none before its time is over, unless that was told as a loss. Returns how many were left.
async fn left_at_the_end_of_a_pause(phase: u32) -> usize {
    let Some(server) = server(MemcachedOptions::new()).await else { return 0 };
    let lease = LONG_PAUSE + THREE_SECONDS * 2;
    let mut config = config(&server).with_longest_lease(lease);
    config.client.lease = LeaseOptions::new(lease).with_auto_renew(false);
    config.client.op_timeout = ms(6000);
    let (one, other) = (opened(config.clone()).await, opened(config).await);
    let names: Vec<_> = (0..CONNECTIONS - 8).map(|number| format!("left/{number}")).collect();
    let held = join_all(names.iter().map(async |name| one.mutex(&**name).lock().await.unwrap())).await;
    until_phase(Duration::from_secs(1) / PHASES * phase + ms(100)).await;
    server.stop().unwrap();
    pass(LONG_PAUSE).await;
    // Soon before it goes on: the first ones have the connections that are open already.
    until_phase(ms(800)).await;
    let mut leaving = Vec::new();
    for (guard, name) in held.into_iter().zip(names) {
        let theirs = other.mutex(name);
        leaving.push(tokio::spawn(async move {
            let asked = Instant::now();
            if let Err(failed) = guard.leave(LEASE).await {
                // The old clock has ended it, and whoever left it is told.
                assert_eq!(failed.error.kind(), ErrorKind::Lost, "{failed}");
                return;
            }
            let next = theirs.try_lock_for(ms(20_000)).await.unwrap().expect("it ends by itself");
            assert!(asked.elapsed() >= LEASE, "it was free {:?} after it was left", asked.elapsed());
            next.release().await.unwrap();
        }));
        pass(ms(5)).await;
    }
    until_phase(ms(20)).await;
    server.cont().unwrap();
    let left = leaving.len();
    join_all(leaving).await.into_iter().for_each(|left| left.unwrap());
    left
}

/// Waits until the seconds that servers count are this old.
async fn until_phase(phase: Duration) {
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    pass(Duration::from_secs_f64((phase.as_secs_f64() - uptime).rem_euclid(1.0))).await;
}

/// It has nothing to compare the server's clock with. But its connection is accepted by the thread that ticks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_connects_while_the_server_stands_is_granted_nothing_that_ends_early() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let mut config = config(&server);
    config.client.lease = LeaseOptions::new(LEASE).with_auto_renew(false);
    config.client.op_timeout = ms(15_000);
    let other = opened(config.clone()).await;
    server.stop().unwrap();
    let claims: Vec<_> = (0..16)
        .map(|number| {
            let (config, other) = (config.clone(), other.clone());
            tokio::spawn(async move {
                let locks = MemcachedLocks::connect_with(config).await.unwrap();
                alone(&locks, &other, &format!("{number}")).await.unwrap();
            })
        })
        .collect();
    // Longer than an item outlasts its lease.
    pass(ms(8000)).await;
    server.cont().unwrap();
    join_all(claims).await.into_iter().for_each(|claim| claim.unwrap());
}

/// The epoch is missing at the first look and put back; the second one may be the measure of the clock as well, and the server
/// may have stood still since the first.
#[tokio::test]
async fn each_look_at_a_clock_of_which_nothing_is_known_goes_over_a_new_connection() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, _locks) = far(&server, RestartPolicy::Quarantine).await;
    assert_eq!(link.connections(), 2);
}

#[tokio::test]
async fn a_reply_that_is_late_costs_no_connection() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off);
    config.client.op_timeout = ms(15_000);
    let mutex = MemcachedLocks::connect_with(config).await.unwrap().mutex("late").with_ttl(ms(60_000));
    let late = async |round: usize| {
        server.stop().unwrap();
        let asked = tokio::spawn({
            let mutex = mutex.clone();
            async move { mutex.try_lock().await }
        });
        // Longer than a reply takes that is on its way.
        pass(ms(700)).await;
        server.cont().unwrap();
        let held = asked.await.unwrap().unwrap();
        held.unwrap_or_else(|| panic!("round {round}: not granted")).release().await.unwrap();
    };
    late(0).await;
    let (before, _) = settled_closed_connections(&server).await;
    late(1).await;
    late(2).await;
    // How many are opened is another matter: others use connections of their own meanwhile, as many as that takes.
    let (closed, questions) = settled_closed_connections(&server).await;
    assert_eq!(closed, before + questions, "one for each question but the last, and that of the question before");
}
