//! Waiting for a lock of a quorum: what it costs, and who comes next.

use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_redis::{MutexGuard, QuorumLocks};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::soon;
use lock_testkit_servers::resp::Value;

use crate::servers::{ALL, PROMPTLY, SLACK, Servers, about_time, eventually, key, long, ms};

impl Servers {
    /// The number of clients that wait for a lock at one server.
    async fn waiting(&self, server: usize, name: &str) -> Option<i64> {
        self.run(server, &["ZCARD", &format!("{}:w", key(name))]).await.as_int()
    }

    async fn until_waiting(&self, name: &str, clients: i64) {
        for server in ALL {
            let what = format!("{clients} clients wait at server {server}");
            eventually(&what, PROMPTLY, async || (self.waiting(*server, name).await >= Some(clients)).then_some(()))
                .await;
        }
    }

    /// The number of commands that all servers have run, those of scripts included.
    async fn commands(&self) -> u64 {
        let mut calls = 0;
        for server in ALL {
            let stats = self.run(*server, &["INFO", "commandstats"]).await.as_text().unwrap();
            let of_line = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
            calls += stats.lines().filter_map(of_line).sum::<u64>();
        }
        calls
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_waiters_of_one_client_cost_the_servers_as_much_as_one() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("idle").with_lease(long())).await;
    let waits: Vec<_> = (0..50)
        .map(|_| {
            let mutex = waiter.mutex("idle");
            tokio::spawn(async move { mutex.lock().await?.release().await })
        })
        .collect();
    servers.until_waiting("idle", 1).await;
    let before = servers.commands().await;
    // Not a wait for something to happen: the time over which is counted.
    tokio::time::sleep(ms(3000)).await;
    let commands = servers.commands().await - before;
    // One client asks five servers about once a second; the count of commands is a few itself.
    assert!(commands < 500, "{commands} commands in 3 s");
    held.release().await.unwrap();
    for granted in join_all(waits).await {
        granted.unwrap().unwrap();
    }
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_dropped_during_its_first_round_is_taken_out_at_the_servers() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("dropped").with_lease(long())).await;
    // Without a majority of answers the round goes on.
    servers.stop(&[2, 3, 4]);
    let mutex = waiter.mutex("dropped");
    let wait = tokio::spawn(async move { mutex.lock().await.map(drop) });
    for server in [0, 1] {
        let counted = async || (servers.waiting(server, "dropped").await == Some(1)).then_some(());
        eventually("the client is counted", PROMPTLY, counted).await;
    }
    wait.abort();
    for server in [0, 1] {
        // By itself a server forgets it after 3 s.
        let forgotten = async || (servers.waiting(server, "dropped").await == Some(0)).then_some(());
        eventually("the client is taken out", ms(1500), forgotten).await;
    }
    servers.cont(&[2, 3, 4]);
    held.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_future_is_not_polled_keeps_nobody_of_its_client_from_a_free_lock() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("left").with_lease(long())).await;
    let first = waiter.mutex("left");
    let mut first = Box::pin(first.lock());
    tokio::select! {
        granted = &mut first => panic!("granted beside its holder: {granted:?}"),
        () = servers.until_waiting("left", 1) => {}
    }
    held.release().await.unwrap();
    for turn in 0..3 {
        let next = waiter.mutex("left").try_lock_for(PROMPTLY).await.unwrap();
        next.unwrap_or_else(|| panic!("turn {turn}: the lock is free")).release().await.unwrap();
    }
    first.await.unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

/// Has a client lock what is free while so many futures of it that wait for it are not polled.
async fn lock_beside_futures_that_are_not_polled(several: usize) {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("left").with_lease(long())).await;
    let left: Vec<_> = (0..several).map(|_| waiter.mutex("left")).collect();
    let mut left: Vec<_> = left.iter().map(|mutex| Box::pin(mutex.lock())).collect();
    tokio::select! {
        granted = &mut left[0] => panic!("granted beside its holder: {granted:?}"),
        () = servers.until_waiting("left", 1) => {}
    }
    for behind in &mut left[1..] {
        assert!(behind.as_mut().now_or_never().is_none(), "granted beside its holder");
    }
    held.release().await.unwrap();
    waiter.mutex("left").lock().await.unwrap().release().await.unwrap();
    for wait in left {
        wait.await.unwrap().release().await.unwrap();
    }
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_waiters_whose_futures_are_not_polled_keep_nobody_of_their_client_from_a_free_lock() {
    lock_beside_futures_that_are_not_polled(3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_waiters_whose_futures_are_not_polled_keep_nobody_of_their_client_from_a_free_lock() {
    lock_beside_futures_that_are_not_polled(30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_a_waiter_after_the_others_have_granted_forgets_it() {
    let Some(servers) = Servers::start().await else { return };
    let client = servers.client().await;
    // Another one holds the lock at the last server only, which answers late.
    let late = ALL[ALL.len() - 1];
    let foreign = format!("{:032x}:1:1:", 7);
    assert!(!matches!(servers.run(late, &["SET", &key("late"), &foreign, "PX", "20000"]).await, Value::Error(_)));
    servers.stop(&[late]);
    let guard = client.mutex("late").with_lease(long()).lock().await.unwrap();
    servers.cont(&[late]);
    let stats = async || servers.run(late, &["INFO", "commandstats"]).await.as_text().unwrap_or_default();
    let refused = async || stats().await.contains("cmdstat_zadd").then_some(());
    eventually("the last server has refused the waiter", PROMPTLY, refused).await;
    // By itself the server forgets it after 3 s.
    let forgotten = async || (servers.waiting(late, "late").await == Some(0)).then_some(());
    eventually("the client is taken out", ms(1500), forgotten).await;
    guard.release().await.unwrap();
}

/// Tests that no waiter depends on a push. Of a release all servers tell the client that has waited longest, and here none of the
/// pushes comes. The client asks 0.9 s after it asked last, so it is granted within 1 s of the release: one poll interval, and what
/// a round of requests takes. What a busy machine may add comes on top.
#[test]
fn a_waiter_whose_pushes_are_swallowed_at_every_server_is_granted_within_a_second() {
    about_time(async || {
        let Some(servers) = Servers::start().await else { return };
        let (links, config) = servers.behind_proxies(ALL.len());
        let locks = QuorumLocks::connect_with(config).await.unwrap();
        let (holder, mutex) = (servers.client().await, locks.mutex("untold").with_lease(long()));
        for server in ALL {
            let listen = async || {
                let channels = servers.run(*server, &["PUBSUB", "CHANNELS"]).await.into_parts();
                (channels.len() == 2).then_some(())
            };
            eventually(&format!("both clients listen to server {server}"), PROMPTLY, listen).await;
        }
        for _ in 0..5 {
            let held = servers.hold_everywhere(&holder.mutex("untold").with_lease(long())).await;
            let swallowed: Vec<_> = links
                .iter()
                .map(|link| link.inject(LinkFault::new(Toxic::Swallow, Direction::ToClient).on_push(1, key("untold"))))
                .collect();
            let waiter = mutex.clone();
            let wait = tokio::spawn(async move { waiter.lock().await.map(|held| (held, Instant::now())) });
            servers.until_waiting("untold", 1).await;
            let began = Instant::now();
            held.release().await.unwrap();
            let (granted, at) = soon("the waiter is granted", PROMPTLY, wait).await.unwrap().unwrap();
            let took = at.duration_since(began);
            println!("granted {took:?} after the release");
            // Each server has told it, and nothing has come.
            for push in swallowed {
                push.applied(PROMPTLY).await.unwrap();
                push.heal().unwrap();
            }
            assert!(took < ms(1000) + SLACK, "granted {took:?} after the release");
            granted.release().await.unwrap();
        }
        servers.have_nothing_left(ALL).await;
    });
}

/// Tests hand-overs with others in between: the lock is reserved for the waiter in the step that frees it.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_overtakes_a_client_that_waits() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter, third) = (servers.client().await, servers.client().await, servers.client().await);
    for round in 0..10 {
        let name = format!("next {round}");
        let held = servers.hold_everywhere(&holder.mutex(name.as_str()).with_lease(long())).await;
        let mutex = waiter.mutex(name.as_str()).with_lease(long());
        let wait = tokio::spawn(async move { mutex.lock().await });
        servers.until_waiting(&name, 1).await;
        held.release().await.unwrap();
        let third = third.mutex(name.as_str()).try_lock().await.unwrap();
        assert!(third.is_none(), "a try came before the client that has been waiting");
        wait.await.unwrap().unwrap().release().await.unwrap();
    }
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_passes_over_clients_that_are_gone() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, waiter) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("gone").with_lease(long())).await;
    let waiters = format!("{}:w", key("gone"));
    for server in ALL {
        for gone in 0..20 {
            let client = format!("{gone:032x}");
            assert!(!matches!(servers.run(*server, &["ZADD", &waiters, "1", &client]).await, Value::Error(_)));
        }
    }
    let mutex = waiter.mutex("gone").with_lease(long());
    let wait = tokio::spawn(async move { mutex.lock().await });
    servers.until_waiting("gone", 21).await;
    held.release().await.unwrap();
    for server in ALL {
        // A release is told once most servers have carried it out.
        let what = format!("server {server} has forgotten them in the same step");
        eventually(&what, PROMPTLY, async || (servers.waiting(*server, "gone").await == Some(0)).then_some(())).await;
    }
    let granted = tokio::time::timeout(PROMPTLY, wait).await.expect("granted").unwrap().unwrap();
    granted.release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_forget_a_client_whose_waiter_has_left() {
    let Some(servers) = Servers::start().await else { return };
    let (holder, leaver, waiter) = (servers.client().await, servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&holder.mutex("left").with_lease(long())).await;
    let mutex = waiter.mutex("left").with_lease(long());
    // It keeps the servers' list alive, so that the other one's place does not expire.
    let wait = tokio::spawn(async move { mutex.lock().await });
    servers.until_waiting("left", 1).await;
    let mutex = leaver.mutex("left");
    let leaving = tokio::spawn(async move { mutex.lock().await.map(drop) });
    servers.until_waiting("left", 2).await;
    leaving.abort();
    for server in ALL {
        let what = format!("server {server} has forgotten it");
        eventually(&what, PROMPTLY, async || (servers.waiting(*server, "left").await == Some(1)).then_some(())).await;
    }
    held.release().await.unwrap();
    wait.await.unwrap().unwrap().release().await.unwrap();
    servers.have_nothing_left(ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_two_clients_take_turns() {
    let Some(servers) = Servers::start().await else { return };
    let clients = [servers.client().await, servers.client().await];
    let turns: [_; 2] = std::array::from_fn(|_| std::sync::Arc::<std::sync::atomic::AtomicU32>::default());
    let mut tasks = Vec::new();
    for (client, turns) in clients.iter().zip(&turns) {
        for _ in 0..4 {
            let (mutex, turns) = (client.mutex("turns"), turns.clone());
            tasks.push(tokio::spawn(async move {
                loop {
                    if let Ok(held) = mutex.lock().await {
                        turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let _ = held.release().await;
                    }
                }
            }));
        }
    }
    let seen = || turns.each_ref().map(|turns| turns.load(std::sync::atomic::Ordering::Relaxed));
    eventually("both clients had many turns", PROMPTLY, async || seen().iter().all(|turns| *turns > 200).then_some(()))
        .await;
    let [a, b] = seen();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(a.max(b) < 4 * a.min(b), "{a} and {b} turns");
}

/// Ends a hold by `end` in any way but its release, while other tasks of its client wait for half a second again and again, so that one
/// of them waits at any instant. One of those has the lock soon, although the former guard, if there is one, is kept.
async fn short_waits_go_on_after(name: &str, end: impl AsyncFnOnce(MutexGuard, QuorumLocks) -> Option<MutexGuard>) {
    let Some(servers) = Servers::start().await else { return };
    let (before, locks) = (servers.client().await, servers.client().await);
    let held = servers.hold_everywhere(&before.mutex(name).with_lease(long())).await;
    let mutex = locks.mutex(name).with_lease(long());
    let waiter = mutex.clone();
    let granted = tokio::spawn(async move { waiter.lock().await });
    servers.until_waiting(name, 1).await;
    let (ended, mut ends) = tokio::sync::mpsc::unbounded_channel();
    let short = |first| {
        let (mutex, ended) = (mutex.clone(), ended.clone());
        async move {
            let mut time = first;
            loop {
                if let Some(held) = mutex.try_lock_for(time).await.unwrap() {
                    return held;
                }
                time = ms(500);
                let _ = ended.send(first);
            }
        }
    };
    let mut waits = tokio::task::JoinSet::new();
    for first in [ms(250), ms(500)] {
        waits.spawn(short(first));
    }
    let (mut first, mut second) = (false, false);
    while !(first && second) {
        let which = soon("both wait for the second time", PROMPTLY, ends.recv()).await.unwrap();
        (first, second) = (first || which == ms(250), second || which == ms(500));
    }
    held.release().await.unwrap();
    let granted = soon("the first waiter is granted", PROMPTLY, granted).await.unwrap().unwrap();
    let _kept = end(granted, before).await;
    let next = soon("a short wait is granted", ms(3000), waits.join_next()).await.unwrap().unwrap();
    next.release().await.unwrap();
}

#[test]
fn short_waits_are_granted_a_lock_that_another_task_of_the_client_has_left() {
    about_time(async || {
        short_waits_go_on_after("left", async |held, _| {
            held.leave(ms(100)).await.unwrap();
            None
        })
        .await;
    });
}

#[test]
fn short_waits_are_granted_a_lock_that_another_task_of_the_client_has_lost_by_force() {
    about_time(async || {
        short_waits_go_on_after("forced", async |held, operator| {
            let freed = operator.mutex("forced").force_release(held.grant_id(), "its machine hangs").await;
            assert!(freed.unwrap());
            Some(held)
        })
        .await;
    });
}

#[test]
fn short_waits_are_granted_a_lock_that_another_task_of_the_client_has_detached() {
    about_time(async || {
        short_waits_go_on_after("detached", async |held, other| {
            let adopted = other.adopt(&held.detach().await.unwrap()).await.unwrap();
            // A release would be told.
            adopted.leave(ms(100)).await.unwrap();
            None
        })
        .await;
    });
}
