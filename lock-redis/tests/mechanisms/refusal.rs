//! A server that answers, but refuses: out of memory, or a read-only replica.

use futures_util::future::join_all;
use lock_redis::{ClientOptions, ErrorKind, Phase, RedisConfig, Retry};

use crate::queue::QueuedTasks;
use crate::server::{
    HAND_OVER, PROMPTLY, SLACK, Server, about_time, configured, eventually, key, long, ms, obtain, often, refused,
    renewed, runs, soon,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_out_of_memory_refuses_definitely_and_leaves_nothing() {
    let Some(server) = Server::start().await else { return };
    let locks = server.impatient_client().await;
    let mutex = locks.mutex("refusal");
    // Also where a token is remembered, and where it is not.
    for name in ["refusal", "new"] {
        server.say("CONFIG SET maxmemory 1").await;
        let mutex = locks.mutex(name);
        let shown = server.shown();
        let error = refused(mutex.try_lock().await, &[ErrorKind::Unavailable], &[Phase::Acquire], name, &shown);
        assert_eq!(error.retry(), Retry::Later);
        assert!(error.to_string().contains("memory"), "{error}");
        refused(mutex.try_lock_for(ms(300)).await, &[ErrorKind::Unavailable], &[Phase::Acquire], name, &shown);
        refused(mutex.lock().await, &[ErrorKind::Unavailable], &[Phase::Acquire, Phase::Wait], name, &shown);
        assert!(mutex.inspect().await.unwrap().is_free());
        server.has_nothing_left().await;
        server.say("CONFIG SET maxmemory 0").await;
        obtain(&locks, name, HAND_OVER + SLACK).await.release().await.unwrap();
    }
    // A wait goes on until there is memory.
    server.say("CONFIG SET maxmemory 1").await;
    let mut waiting = tokio::spawn(async move { mutex.lock().await });
    assert!(tokio::time::timeout(ms(700), &mut waiting).await.is_err(), "ended for want of memory");
    server.say("CONFIG SET maxmemory 0").await;
    soon("granted", HAND_OVER + SLACK, waiting).await.unwrap().unwrap().release().await.unwrap();
    server.is_as_new(&locks, "refusal").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_that_have_no_place_ask_a_server_that_refuses_less_and_less_often() {
    let Some(server) = Server::start().await else { return };
    let mut options = ClientOptions::default();
    options.patience = ms(5000);
    let locks = configured(RedisConfig::new(server.url()).with_client(options)).await.unwrap();
    server.say("CONFIG SET maxmemory 1").await;
    let waits = join_all((0..100).map(|i| {
        let mutex = locks.mutex(format!("refusal/{i}"));
        async move { mutex.lock().await }
    }));
    let shown = server.shown();
    for (i, outcome) in soon("their patience ends", PROMPTLY, waits).await.into_iter().enumerate() {
        let name = format!("refusal/{i}");
        refused(outcome, &[ErrorKind::Unavailable], &[Phase::Acquire, Phase::Wait], &name, &shown);
    }
    // A tenth of a second after each other these would be 5,000.
    let asked = runs(&server).await;
    assert!(asked < 1500, "{asked} runs of scripts");
    server.say("CONFIG SET maxmemory 0").await;
    server.is_as_new(&locks, "refusal/0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_and_released_without_memory() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("refusal").with_lease(often()).lock().await.unwrap();
    server.say("CONFIG SET maxmemory 1").await;
    renewed(&held, 3).await;
    held.extend(ms(10_000)).await.unwrap();
    held.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_without_memory_frees_and_the_waiters_get_the_lock_in_order() {
    let Some(server) = Server::start().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    // At once, and after the waiters' signs of life have failed for longer than their liveness.
    for pause in [0, 4000] {
        let held = holder.mutex("refusal").with_lease(long()).lock().await.unwrap();
        let queue = QueuedTasks::up(&server, &[&a, &b], "refusal", 4).await;
        server.say("CONFIG SET maxmemory 1").await;
        tokio::time::sleep(ms(pause)).await;
        let grant = held.grant_id();
        held.release().await.unwrap();
        let seen = a.mutex("refusal").inspect().await.unwrap();
        assert!(seen.holders.iter().all(|holder| holder.grant != Some(grant)), "the release freed nothing: {seen:?}");
        tokio::time::sleep(ms(500)).await;
        server.say("CONFIG SET maxmemory 0").await;
        assert_eq!(queue.order(HAND_OVER * 4 + SLACK).await, [0, 1, 2, 3]);
        server.is_as_new(&a, "refusal").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_without_memory_leaves_nothing() {
    let Some(server) = Server::start().await else { return };
    let (holder, waiter) = (server.client().await, server.client().await);
    let held = holder.mutex("refusal").with_lease(long()).lock().await.unwrap();
    let waiting = tokio::spawn(obtain(&waiter, "refusal", PROMPTLY));
    server.until_queued("refusal", 1).await;
    server.say("CONFIG SET maxmemory 1").await;
    waiting.abort();
    server.until_queued("refusal", 0).await;
    held.release().await.unwrap();
    server.say("CONFIG SET maxmemory 0").await;
    obtain(&waiter, "refusal", HAND_OVER + SLACK).await.release().await.unwrap();
    server.is_as_new(&waiter, "refusal").await;
}

#[test]
fn without_memory_a_waiter_gets_the_lock_of_a_holder_that_crashed() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let waiter = server.client().await;
        // One waiter, for which the short heartbeat is, and two.
        for waiters in [1, 2] {
            // Nobody renews or releases it. It ends later than a waiter that gives no sign counts as alive.
            let held = format!("{:032x}:{:016x}:{{}}:{}", 1, 1, 1_763_703_842_000_000_u64);
            server.run(&["SET", &key("refusal"), &held, "PX", "8000"]).await;
            let queue = QueuedTasks::up(&server, &[&waiter], "refusal", waiters).await;
            server.say("CONFIG SET maxmemory 1").await;
            let order = queue.order(ms(8000) + HAND_OVER * 2 + SLACK).await;
            server.say("CONFIG SET maxmemory 0").await;
            assert_eq!(order, (0..waiters).collect::<Vec<_>>());
            server.is_as_new(&waiter, "refusal").await;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_replica_refuses_definitely_and_a_promoted_one_works() {
    let (Some(primary), Some(server)) = (Server::start().await, Server::start().await) else { return };
    let locks = server.impatient_client().await;
    server.say(&format!("REPLICAOF 127.0.0.1 {}", primary.port().unwrap())).await;
    eventually("the replica follows", PROMPTLY, async || {
        server.say("INFO replication").await.as_text().unwrap().contains("master_link_status:up").then_some(())
    })
    .await;
    let (mutex, shown) = (locks.mutex("refusal"), server.shown());
    let error = refused(mutex.try_lock().await, &[ErrorKind::Unavailable], &[Phase::Acquire], "refusal", &shown);
    assert!(error.to_string().contains("replica"), "{error}");
    refused(mutex.lock().await, &[ErrorKind::Unavailable], &[Phase::Acquire, Phase::Wait], "refusal", &shown);
    let fresh = server.impatient_client().await;
    refused(fresh.mutex("refusal").try_lock().await, &[ErrorKind::Unavailable], &[Phase::Acquire], "refusal", &shown);
    assert_eq!(primary.say("DBSIZE").await.as_int(), Some(0));
    server.say("REPLICAOF NO ONE").await;
    for locks in [&locks, &fresh] {
        server.is_as_new(locks, "refusal").await;
    }
}
