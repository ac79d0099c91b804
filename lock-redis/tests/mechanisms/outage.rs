//! A server that is away: before the first connection, later, and back without its data.

use std::time::Instant;

use futures_util::future::join_all;
use lock_redis::{ErrorKind, LossReason, Phase, RedisConfig, RedisLocks, Retry};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{
    HAND_OVER, PROMPTLY, SHORT, SLACK, Server, about_time, eventually, hasty, long, ms, obtain, refused, soon,
};

const ACQUIRING: [Phase; 3] = [Phase::Acquire, Phase::Wait, Phase::Connect];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_at_connect_is_unavailable_until_it_is_up() {
    let Some(server) = Server::start().await else { return };
    server.kill().unwrap();
    let began = Instant::now();
    let error = RedisLocks::connect(server.url()).await.unwrap_err();
    assert_eq!((error.kind(), error.phase(), error.retry()), (ErrorKind::Unavailable, Phase::Connect, Retry::Later));
    assert!(error.is_definite() && error.to_string().contains(&server.shown()), "{error}");
    assert!(began.elapsed() < ms(1000) + SLACK, "took {:?}", began.elapsed());
    server.restart().await;
    let locks = server.client().await;
    server.is_as_new(&locks, "outage").await;
    // It takes connections and says nothing.
    server.stop().unwrap();
    let error = RedisLocks::connect(server.url()).await.unwrap_err();
    assert_eq!((error.kind(), error.phase()), (ErrorKind::Unavailable, Phase::Connect), "{error:?}");
    server.cont().unwrap();
    drop(locks);
    crate::links::are_gone(&server).await;
}

/// Their client cannot cancel them for longer than the core tries, and the lock is held and waited for by others meanwhile. Then it waits
/// again, which keeps everything alive that it has in the queue.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn waiters_that_could_not_be_cancelled_keep_nobody_waiting_when_their_client_is_back() {
    const WAITERS: usize = 10;
    let Some(server) = Server::start().await else { return };
    let (holder, other) = (server.client().await, server.client().await);
    let link = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let config = RedisConfig::new(format!("redis://{}", link.address())).with_client(hasty());
    let locks = RedisLocks::connect_with(config).await.unwrap();
    let held = holder.mutex("outage").with_lease(long()).lock().await.unwrap();
    let wait = |locks: &RedisLocks| {
        let mutex = locks.mutex("outage").with_lease(long());
        tokio::spawn(async move { mutex.lock().await })
    };
    let gave_up: Vec<_> = (0..WAITERS).map(|_| wait(&locks)).collect();
    server.until_queued("outage", WAITERS).await;
    let next = wait(&other);
    server.until_queued("outage", WAITERS + 1).await;
    let away = link.inject(LinkFault::new(Toxic::Blackhole, Direction::Both));
    for waiting in gave_up {
        assert!(soon("it gives up", ms(10_000), waiting).await.unwrap().is_err());
    }
    // The core tries for a minute, and one operation timeout more.
    tokio::time::sleep(ms(75_000)).await;
    away.heal().unwrap();
    let comes_back = wait(&locks);
    server.until_queued("outage", WAITERS + 2).await;
    let released = Instant::now();
    held.release().await.unwrap();
    let granted = soon("the next one is granted", ms(60_000), next).await.unwrap().unwrap();
    assert!(released.elapsed() < ms(5000), "took {:?}", released.elapsed());
    granted.release().await.unwrap();
    soon("the one that came back is granted", PROMPTLY, comes_back).await.unwrap().unwrap().release().await.unwrap();
}

#[test]
fn a_server_that_goes_down_later_is_a_typed_error_and_the_same_client_works_when_it_is_back() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let locks = server.hasty_client().await;
        let (mutex, shown) = (locks.mutex("outage"), server.shown());
        let unclear = [ErrorKind::Unavailable, ErrorKind::Indeterminate];
        for _ in 0..2 {
            obtain(&locks, "outage", ms(3000)).await.release().await.unwrap();
            let held = locks.mutex("held").with_lease(long()).lock().await.unwrap();
            server.kill().unwrap();
            for _ in 0..3 {
                let began = Instant::now();
                refused(mutex.try_lock().await, &unclear, &ACQUIRING, "outage", &shown);
                assert!(began.elapsed() < SHORT + ms(400), "a try took {:?}", began.elapsed());
            }
            refused(mutex.try_lock_for(ms(700)).await, &unclear, &ACQUIRING, "outage", &shown);
            refused(mutex.inspect().await, &unclear, &[Phase::Inspect, Phase::Connect], "outage", &shown);
            refused(held.extend(ms(40_000)).await, &unclear, &[Phase::Renew], "held", &shown);
            assert!(held.is_held(), "a failed extension ended the lease");
            refused(held.release().await, &[ErrorKind::Indeterminate], &[Phase::Release], "held", "");
            let began = Instant::now();
            refused(mutex.lock().await, &unclear, &ACQUIRING, "outage", &shown);
            assert!(began.elapsed() < ms(3000) + SHORT * 2 + SLACK, "patience took {:?}", began.elapsed());
            server.restart().await;
        }
        server.is_as_new(&locks, "outage").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_begins_while_the_server_is_down_ends_with_a_grant_when_it_is_up() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    server.kill().unwrap();
    let waiting: Vec<_> = (0..5).map(|_| tokio::spawn(obtain(&locks, "outage", PROMPTLY * 2))).collect();
    tokio::time::sleep(ms(1500)).await;
    server.restart().await;
    let in_turn =
        join_all(waiting.into_iter().map(|waiting| async { waiting.await.unwrap().release().await.unwrap() }));
    soon("all of them in turn", HAND_OVER * 5 + SLACK, in_turn).await;
    server.is_as_new(&locks, "outage").await;
}

#[test]
fn a_server_that_comes_back_without_its_data_is_a_loss_for_the_holder() {
    about_time(async || {
        let Some(server) = Server::start().await else { return };
        let locks = server.client().await;
        for _ in 0..2 {
            let held = locks.mutex("outage").with_ttl(ms(3000)).lock().await.unwrap();
            let token = held.fencing_token();
            server.restart().await;
            let left = held.remaining();
            let reason = soon("the loss is told by the deadline", left + ms(100) + ms(500), held.lost()).await;
            // Where the renewal got through in time, it says why.
            assert!(matches!(reason, LossReason::Taken | LossReason::Expired), "{reason}");
            println!("{reason}");
            assert!(!held.is_held());
            assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
            let next = obtain(&locks, "outage", HAND_OVER + SLACK).await;
            assert!(next.fencing_token() > token, "tokens went back with the data");
            next.release().await.unwrap();
        }
        server.is_as_new(&locks, "outage").await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_back_at_once_without_its_data_is_told_as_taken_at_the_next_renewal() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("outage").with_ttl(ms(12_000)).lock().await.unwrap();
    server.restart().await;
    let reason = soon("the loss is told at the next renewal", ms(4000) + ms(2000) + SLACK, held.lost()).await;
    assert_eq!(reason, LossReason::Taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_a_server_that_comes_back_without_its_data_get_in_line_again() {
    let Some(server) = Server::start().await else { return };
    let (holder, a, b) = (server.client().await, server.client().await, server.client().await);
    let held = holder.mutex("outage").with_lease(long()).lock().await.unwrap();
    let waiting: Vec<_> =
        (0..6).map(|number| tokio::spawn(obtain([&a, &b][number % 2], "outage", PROMPTLY * 3))).collect();
    server.until_queued("outage", 6).await;
    server.restart().await;
    let in_turn =
        join_all(waiting.into_iter().map(|waiting| async { waiting.await.unwrap().release().await.unwrap() }));
    // Reconnecting, entering again, and no more than a lost push for each.
    soon("all of them in turn", ms(3000) + HAND_OVER * 6 + SLACK, in_turn).await;
    assert!(held.release().await.is_err(), "released what the server had lost");
    server.is_as_new(&holder, "outage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_clients_that_lose_their_server_again_and_again_all_work_afterwards() {
    let Some(server) = Server::start().await else { return };
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(server.client().await);
    }
    let busy: Vec<_> = (0..10)
        .map(|number| {
            let mutex = clients[number].mutex(["one", "two"][number % 2]).with_ttl(ms(1000));
            tokio::spawn(async move {
                loop {
                    // Whatever comes of it: the point is that nothing hangs or panics.
                    if let Ok(held) = mutex.lock().await {
                        let _ = held.while_held(tokio::time::sleep(ms(5))).await;
                        let _ = held.release().await;
                    }
                }
            })
        })
        .collect();
    for _ in 0..5 {
        tokio::time::sleep(ms(400)).await;
        server.restart().await;
    }
    for task in busy {
        assert!(!task.is_finished(), "a task panicked");
        task.abort();
    }
    for locks in &clients {
        for name in ["one", "two"] {
            obtain(locks, name, PROMPTLY).await.release().await.unwrap();
        }
    }
    eventually("the queues are empty", PROMPTLY, async || {
        (server.queued("one").await + server.queued("two").await == 0).then_some(())
    })
    .await;
    server.is_as_new(&clients[0], "one").await;
}
