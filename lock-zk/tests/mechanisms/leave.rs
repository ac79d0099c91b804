//! Mutexes that are left: by their client, which deletes the node when the time is over.

use std::time::{Duration, Instant};

use lock_testkit_servers::faults::StoreFault;

use crate::support::{LASTING, PROMPTLY, SESSION, client, eventually, maker, nodes, server, soon};

const LONG: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_mutex_that_was_left_ends_with_the_client_that_is_closed() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    locks.mutex("a").lock().await.unwrap().leave(LONG).await.unwrap();
    assert_eq!(nodes(&truth, "a").await.len(), 1);
    soon("the end", PROMPTLY, locks.close()).await.unwrap();
    assert!(nodes(&truth, "a").await.is_empty(), "it is closed, and has left a node");
}

#[tokio::test]
async fn a_mutex_that_was_left_ends_with_its_session() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    locks.mutex("a").lock().await.unwrap().leave(LONG).await.unwrap();
    let held = locks.mutex("b").lock().await.unwrap();
    let session = maker(&truth, &nodes(&truth, "a").await[0]).await;
    StoreFault::StealSession { session }.inject(&server).await.unwrap().heal().unwrap();
    let reason = soon("the holder of another one is told", PROMPTLY, held.lost()).await;
    assert!(crate::SESSION_LOST.contains(&reason), "{reason:?}");
    eventually("the node goes with its session", PROMPTLY, async || nodes(&truth, "a").await.is_empty()).await;
    // Nothing of it is left in the client either: its next one can be left as well.
    let next = soon("a grant in a new session", PROMPTLY, locks.mutex("a").lock()).await.unwrap();
    next.leave(Duration::from_millis(50)).await.unwrap();
    eventually("its end", PROMPTLY, async || nodes(&truth, "a").await.is_empty()).await;
}

#[tokio::test]
async fn a_mutex_that_was_left_stays_when_nobody_uses_the_client_any_more() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let (time, left) = (Duration::from_secs(1), Instant::now());
    locks.mutex("a").lock().await.unwrap().leave(time).await.unwrap();
    drop(locks);
    let ended = eventually("its end", PROMPTLY, async || {
        let ended = Instant::now();
        nodes(&truth, "a").await.is_empty().then_some(ended)
    });
    let after = ended.await - left;
    assert!(after >= time, "it ended after {after:?}");
}

/// The client that has left it renews nothing, so it hears of no loss; its own waiters look at the servers.
#[tokio::test]
async fn a_left_lock_that_another_client_frees_goes_to_a_waiter_of_the_client_that_left_it() {
    let Some(server) = server().await else { return };
    let (a, b) = (client(server.url(), LASTING).await, client(server.url(), LASTING).await);
    let truth = server.client().await.unwrap();
    for (name, waits_before) in [("before", true), ("behind", false)] {
        let held = a.mutex(name).lock().await.unwrap();
        let grant = held.grant_id();
        let wait = || {
            let mutex = a.mutex(name);
            tokio::spawn(async move { mutex.lock().await })
        };
        let stands =
            async || eventually("two in the queue", PROMPTLY, async || nodes(&truth, name).await.len() == 2).await;
        let early = waits_before.then(wait);
        if early.is_some() {
            stands().await;
        }
        held.leave(LONG).await.unwrap();
        let waiting = early.unwrap_or_else(wait);
        stands().await;
        // A waiter that looks once of its own accord has done so.
        eventually("it watches at the server", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1)
            .await;
        assert!(b.mutex(name).force_release(grant, "nobody needs it").await.unwrap());
        let next = soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    }
}
