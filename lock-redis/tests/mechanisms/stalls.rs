//! A process that stands still: its runtime is blocked while others go on.

use std::time::Duration;

use lock_redis::{ClientOptions, LossReason, RedisConfig, RedisLocks};

use crate::server::{
    HAND_OVER, PROMPTLY, SHORT, SLACK, Server, about_time, eventually, hasty, key, long, ms, obtain, soon,
};

/// Runs this on a runtime of its own with one thread, which a test can block.
fn alone<F>(work: impl FnOnce() -> F + Send + 'static) -> std::thread::JoinHandle<()>
where
    F: Future<Output = ()>,
{
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work());
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_stood_still_across_its_turn_does_not_believe_the_push() {
    let Some(server) = Server::start().await else { return };
    let (holder, next) = (server.client().await, server.client().await);
    let held = holder.mutex("stalls").with_lease(long()).lock().await.unwrap();
    let url = server.url().to_owned();
    let (granted, told) = tokio::sync::oneshot::channel();
    let (block, blocked) = tokio::sync::oneshot::channel();
    let (stands, still) = tokio::sync::oneshot::channel();
    let stalled = alone(move || async move {
        let locks = RedisLocks::connect(url).await.unwrap();
        let waiting = tokio::spawn(async move { locks.mutex("stalls").with_lease(long()).lock().await.unwrap() });
        let pause: Duration = blocked.await.unwrap();
        // Nothing of this process runs from here on, and its turn comes and goes.
        stands.send(()).unwrap();
        std::thread::sleep(pause);
        let held = waiting.await.unwrap();
        granted.send((held.is_held(), held.fencing_token())).unwrap();
        held.release().await.unwrap();
    });
    server.until_queued("stalls", 1).await;
    let behind = tokio::spawn(obtain(&next, "stalls", PROMPTLY));
    server.until_queued("stalls", 2).await;
    block.send(ms(3500)).unwrap();
    still.await.unwrap();
    held.release().await.unwrap();
    let second = soon("the one behind it, after its claim", ms(2000) + HAND_OVER + SLACK, behind).await.unwrap();
    // It wakes, finds the push, and must not believe it as long as this one holds.
    let mut told = told;
    assert!(tokio::time::timeout(ms(2500), &mut told).await.is_err(), "two hold the lock");
    let token = second.fencing_token();
    second.release().await.unwrap();
    let (held, later) = soon("its turn after that", HAND_OVER + SLACK, told).await.unwrap();
    assert!(held && later > token, "{later:?} after {token:?}");
    tokio::task::spawn_blocking(|| stalled.join().unwrap()).await.unwrap();
    server.is_as_new(&holder, "stalls").await;
}

/// The numbers of the connections that run commands, without the operator's.
async fn connections(server: &Server) -> Vec<String> {
    let own = server.say("CLIENT ID").await.as_int().unwrap().to_string();
    let list = server.say("CLIENT LIST TYPE normal").await.as_text().unwrap();
    let ids = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next().map(str::to_owned));
    ids.filter(|id| *id != own).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_was_blocked_past_its_timeouts_keeps_its_connection() {
    let Some(server) = Server::start().await else { return };
    let url = server.url().to_owned();
    let (go, started) = tokio::sync::oneshot::channel();
    let (done, ended) = tokio::sync::oneshot::channel();
    let (end, over) = tokio::sync::oneshot::channel::<()>();
    let process = alone(move || async move {
        let locks = RedisLocks::connect_with(RedisConfig::new(url).with_client(hasty())).await.unwrap();
        go.send(()).unwrap();
        for _ in 0..4 {
            // Several, so that they are timeouts in a row.
            let ask = |name: &str| {
                let mutex = locks.mutex(name).with_lease(long());
                tokio::spawn(async move { mutex.try_lock().await })
            };
            let asking = ["one", "two", "three"].map(ask);
            // Once: the requests are sent, and nothing is read.
            tokio::task::yield_now().await;
            std::thread::sleep(SHORT + ms(300));
            // Whatever became of them, it says nothing about the connection.
            for asking in asking {
                if let Ok(Some(held)) = asking.await.unwrap() {
                    let _ = held.release().await;
                }
            }
        }
        done.send(()).unwrap();
        let _ = over.await;
    });
    started.await.unwrap();
    let before = connections(&server).await;
    assert_eq!(before.len(), 1);
    soon("the blocked one is done", PROMPTLY, ended).await.unwrap();
    assert_eq!(connections(&server).await, before, "the connection was given up");
    end.send(()).unwrap();
    tokio::task::spawn_blocking(|| process.join().unwrap()).await.unwrap();
    server.has_nothing_left().await;
}

#[test]
fn a_server_that_is_silent_for_a_second_keeps_the_waiters_connection() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let holder = server.client().await;
        let held = holder.mutex("silent").with_lease(long()).lock().await.unwrap();
        let before = connections(&server).await;
        let mut patient = ClientOptions::default();
        patient.op_timeout = ms(10_000);
        let config = RedisConfig::new(server.url()).with_client(patient);
        let waiter = RedisLocks::connect_with(config).await.unwrap();
        let waiting = tokio::spawn(obtain(&waiter, "silent", PROMPTLY * 2));
        server.until_queued("silent", 1).await;
        let waiters = async || {
            let all = connections(&server).await;
            all.into_iter().filter(|id| !before.contains(id)).collect::<Vec<_>>()
        };
        let connected = waiters().await;
        assert_eq!(connected.len(), 1);
        // Long enough for a heartbeat to be sent, and to be without an answer for a second.
        server.say("CLIENT PAUSE 1900 ALL").await;
        tokio::time::sleep(ms(3000)).await;
        assert_eq!(waiters().await, connected, "the waiter's connection was given up");
        held.release().await.unwrap();
        soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
        server.is_as_new(&holder, "silent").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_was_read_only_for_a_while_keeps_holders_and_waiters() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let held = a.mutex("stalls").with_ttl(ms(6000)).lock().await.unwrap();
    let read = a.rwlock("stalls").with_ttl(ms(6000)).read().await.unwrap();
    let waiting = tokio::spawn(obtain(&b, "stalls", PROMPTLY * 2));
    server.until_queued("stalls", 1).await;
    // Nobody is there to follow, so that the data stays.
    server.say("REPLICAOF 127.0.0.1 1").await;
    tokio::time::sleep(ms(2500)).await;
    server.say("REPLICAOF NO ONE").await;
    let lost: Result<LossReason, _> = tokio::time::timeout(ms(4500), held.lost()).await;
    assert!(lost.is_err() && held.is_held() && read.is_held(), "{lost:?}");
    held.release().await.unwrap();
    read.release().await.unwrap();
    soon("handed over", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    eventually("the key is gone", PROMPTLY, async || {
        (server.run(&["EXISTS", &key("stalls")]).await.as_int() == Some(0)).then_some(())
    })
    .await;
    server.is_as_new(&a, "stalls").await;
}
