//! Connections: cut, flushed of their scripts, given up, and used from another runtime.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use lock_redis::RedisLocks;

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, eventually, obtain, often, renewed, soon};

/// Nobody but the operator is connected, and nobody listens.
pub(crate) async fn are_gone(server: &Server) {
    eventually("every connection of the client is closed", PROMPTLY, async || {
        let listening = server.say("PUBSUB CHANNELS").await.into_parts().len();
        let clients = server.say("CLIENT LIST").await.as_text().unwrap().lines().count();
        (listening == 0 && clients == 1).then_some(())
    })
    .await;
}

/// Cuts every connection but the operator's; how many there were.
async fn cut(server: &Server) -> i64 {
    let normal = server.say("CLIENT KILL TYPE normal SKIPME yes").await.as_int().unwrap();
    normal + server.say("CLIENT KILL TYPE pubsub").await.as_int().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_connections_are_cut_is_still_held_and_renewed() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("links").with_lease(often()).lock().await.unwrap();
    let mut cuts = 0;
    for _ in 0..12 {
        cuts += cut(&server).await;
        // On a new connection.
        renewed(&held, 1).await;
    }
    assert!(cuts >= 12, "only {cuts} connections were cut");
    held.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_over_connections_that_were_cut_frees_and_is_confirmed() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    for _ in 0..20 {
        let held = locks.mutex("links").lock().await.unwrap();
        assert_eq!(cut(&server).await, 2);
        held.release().await.unwrap();
        eventually("subscribed again", PROMPTLY, async || {
            (server.say("PUBSUB CHANNELS").await.into_parts().len() == 1).then_some(())
        })
        .await;
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_connections_are_cut_is_granted_a_second_after_the_release_at_the_latest() {
    let Some(server) = Server::start().await else { return };
    let (holder, waiter) = (server.client().await, server.client().await);
    for _ in 0..3 {
        let held = holder.mutex("links").lock().await.unwrap();
        let waiting = tokio::spawn(obtain(&waiter, "links", PROMPTLY));
        server.until_queued("links", 1).await;
        assert!(cut(&server).await >= 2);
        held.release().await.unwrap();
        soon("the waiter is granted", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
    }
    server.is_as_new(&holder, "links").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_push_costs_a_second_at_most() {
    let Some(server) = Server::start().await else { return };
    let (holder, waiter) = (server.client().await, server.client().await);
    let mut worst = Duration::ZERO;
    for _ in 0..5 {
        let held = holder.mutex("links").lock().await.unwrap();
        let waiting = tokio::spawn(obtain(&waiter, "links", PROMPTLY));
        server.until_queued("links", 1).await;
        let nonce = held.grant_id();
        let (killed, released) = tokio::join!(server.say("CLIENT KILL TYPE pubsub"), held.release());
        assert!(killed.as_int() > Some(0));
        released.unwrap();
        let began = std::time::Instant::now();
        let granted = soon("the waiter is granted", HAND_OVER + SLACK, waiting).await.unwrap();
        worst = worst.max(began.elapsed());
        assert_ne!(granted.grant_id(), nonce);
        granted.release().await.unwrap();
    }
    println!("worst: {worst:?}");
    server.is_as_new(&holder, "links").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_its_scripts_is_told_them_again() {
    let Some(server) = Server::start().await else { return };
    let (locks, other) = (server.client().await, server.client().await);
    let mutex = locks.mutex("links").with_lease(often());
    let flush = async || assert!(server.say("SCRIPT FLUSH").await.is_ok());
    flush().await;
    let held = mutex.try_lock().await.unwrap().unwrap();
    flush().await;
    held.extend(often().ttl).await.unwrap();
    flush().await;
    assert!(other.mutex("links").try_lock().await.unwrap().is_none());
    flush().await;
    let waiting = tokio::spawn(obtain(&other, "links", PROMPTLY));
    server.until_queued("links", 1).await;
    // Through renewals and the waiter's questions.
    for _ in 0..6 {
        flush().await;
        renewed(&held, 1).await;
    }
    flush().await;
    held.release().await.unwrap();
    let held = soon("the waiter is granted", HAND_OVER + SLACK, waiting).await.unwrap();
    flush().await;
    assert_eq!(locks.mutex("links").inspect().await.unwrap().holders.len(), 1);
    flush().await;
    assert!(locks.mutex("links").force_release(held.grant_id(), "the test asks").await.unwrap());
    server.is_as_new(&locks, "links").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_dropped_closes_its_connections_and_its_subscription() {
    let Some(server) = Server::start().await else { return };
    are_gone(&server).await;
    let (a, b) = (server.client().await, server.client().await);
    assert_eq!(server.say("CLIENT LIST").await.as_text().unwrap().lines().count(), 5);
    let held = a.mutex("links").lock().await.unwrap();
    let waiting = tokio::spawn(obtain(&b, "links", PROMPTLY));
    server.until_queued("links", 1).await;
    waiting.abort();
    // Two at once, inside of asynchronous code; one guard outlives its client.
    drop((a, b));
    held.release().await.unwrap();
    are_gone(&server).await;
    server.has_nothing_left().await;
    // While the server does not answer, while it is away, and after that.
    let (a, b) = (server.hasty_client().await, server.hasty_client().await);
    server.stop().unwrap();
    assert!(a.mutex("links").try_lock().await.is_err());
    drop(a);
    server.cont().unwrap();
    cut(&server).await;
    drop(b);
    are_gone(&server).await;
    server.has_nothing_left().await;
}

#[test]
fn a_client_that_is_used_from_other_runtimes_works_and_survives_them() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (home, other) = (runtime(), runtime());
    let Some(server) = home.block_on(Server::start()) else { return };
    let locks = home.block_on(server.client());
    // The first lock is taken elsewhere, so that whatever a first lock starts, starts there.
    let abroad = other.block_on(async {
        let held = locks.mutex("abroad").with_lease(often()).lock().await.unwrap();
        locks.mutex("other").lock().await.unwrap().release().await.unwrap();
        held
    });
    let at_home = home.block_on(async { locks.mutex("home").with_lease(often()).lock().await.unwrap() });
    other.shutdown_timeout(Duration::from_millis(100));
    home.block_on(async {
        tokio::join!(renewed(&at_home, 3), renewed(&abroad, 3));
        at_home.release().await.unwrap();
        drop(abroad);
        server.has_nothing_left().await;
    });
    // Nobody's runtime at all.
    let held = home.block_on(async { locks.mutex("home").lock().await.unwrap() });
    drop(locks);
    drop(held);
    home.block_on(async {
        server.has_nothing_left().await;
        are_gone(&server).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connect_that_is_dropped_at_any_point_leaves_no_connection() {
    let Some(server) = Server::start().await else { return };
    let mut finished = 0;
    for polls in (1..30).chain(1..30) {
        let mut connecting = Box::pin(RedisLocks::connect(server.url()));
        let mut polled = 0;
        let outcome = std::future::poll_fn(|cx| {
            if polled == polls {
                return Poll::Ready(None);
            }
            polled += 1;
            let outcome = connecting.as_mut().poll(cx).map(Some);
            if polled == polls && outcome.is_pending() { Poll::Ready(None) } else { outcome }
        });
        finished += usize::from(outcome.await.is_some());
    }
    assert!(0 < finished && finished < 58, "{finished} of 58 came to their end");
    are_gone(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_come_and_go_leave_nothing() {
    let Some(server) = Server::start().await else { return };
    let come_and_go = async |i: u32| {
        // Given up at some point of the connecting.
        let connecting = RedisLocks::connect(server.url());
        if let Ok(Ok(locks)) = tokio::time::timeout(Duration::from_micros(u64::from(i) * 150), connecting).await {
            drop(locks.mutex("links").try_lock().await);
        }
    };
    join_all((0..60).map(come_and_go)).await;
    are_gone(&server).await;
    server.has_nothing_left().await;
}
