//! Permits: big requests among small ones, limits that disagree, and a part given back without memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use lock_redis::{ErrorKind, Inspection, LeaseOptions, Phase};

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, calls, long, ms, refused, soon};

const KEY: &str = "lock:semaphore:{permits}";

#[tokio::test(flavor = "multi_thread")]
async fn a_big_request_is_not_overtaken_by_a_stream_of_small_ones() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let over = Arc::new(AtomicBool::new(false));
    let small: Vec<_> = (0..8)
        .map(|number| {
            let (permits, over) = ([&a, &b][number % 2].semaphore("permits", 4).with_lease(long()), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let permit = permits.acquire().await.unwrap();
                    tokio::time::sleep(ms(20)).await;
                    permit.release().await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..5 {
        let all = a.semaphore("permits", 4).with_lease(long());
        // Every small one in front has its turn once.
        let all = soon("all permits at once", PROMPTLY, all.acquire_many(4)).await.unwrap();
        assert_eq!(b.semaphore("permits", 4).available().await.unwrap(), 0);
        all.release().await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    for task in small {
        soon("a small one ends", PROMPTLY, task).await.unwrap();
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_limit_is_refused_beside_holders_and_beside_waiters_only() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let held = a.semaphore("permits", 2).with_lease(long()).acquire_many(2).await.unwrap();
    let (other, shown) = (b.semaphore("permits", 3), server.shown());
    let mismatch = &[ErrorKind::LimitMismatch];
    refused(other.try_acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    refused(other.acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    let permits = a.semaphore("permits", 2).with_lease(long());
    let waiting = tokio::spawn(async move { permits.acquire().await.unwrap() });
    server.until_in_line(KEY, 1).await;
    // The holder's entry is gone; who waits is let in before the other limit is looked at.
    server.run(&["DEL", KEY]).await;
    refused(other.try_acquire().await, mismatch, &[Phase::Acquire], "permits", &shown);
    let next = soon("let in", HAND_OVER + SLACK, waiting).await.unwrap();
    assert!(held.release().await.is_err());
    next.release().await.unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_given_back_without_memory_lets_the_next_one_in() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let mut held = a.semaphore("permits", 3).with_lease(long()).acquire_many(3).await.unwrap();
    let permits = b.semaphore("permits", 3).with_lease(long());
    let waiting = tokio::spawn(async move { permits.acquire_many(2).await.unwrap() });
    server.until_in_line(KEY, 1).await;
    server.say("CONFIG SET maxmemory 1").await;
    held.release_some(1).await.unwrap();
    assert!(held.is_held() && held.permits() == 2 && !waiting.is_finished());
    held.release_some(1).await.unwrap();
    let next = soon("let in", HAND_OVER + SLACK, waiting).await.unwrap();
    assert_eq!((held.permits(), next.permits()), (1, 2));
    server.say("CONFIG SET maxmemory 0").await;
    held.extend(ms(40_000)).await.unwrap();
    held.release().await.unwrap();
    next.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn free_permits_are_counted_without_a_look_at_each_holder() {
    const HELD: u32 = 1500;
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let semaphore = locks.semaphore("permits", 5000).with_lease(long());
    let held = try_join_all((0..HELD).map(|_| semaphore.acquire())).await.unwrap();
    let looks = async || calls(&server, "hgetall").await + calls(&server, "hscan").await;
    let before = looks().await;
    assert_eq!(semaphore.available().await.unwrap(), 5000 - HELD);
    assert_eq!(looks().await, before);
    let seen = semaphore.inspect().await.unwrap();
    assert_eq!((seen.holders.len(), seen.holder_count()), (Inspection::MOST, u64::from(HELD)));
    // One that is listed, or is not, can be freed by force.
    let (first, last) = (held.first().unwrap(), held.last().unwrap());
    for permit in [first, last] {
        assert!(semaphore.force_release(permit.grant_id(), "the test asks").await.unwrap());
    }
    assert_eq!(semaphore.available().await.unwrap(), 5000 - HELD + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_whose_leases_have_ended_are_free_however_many_there_are() {
    const HELD: u32 = 1200;
    const TTL: Duration = Duration::from_secs(3);
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let kept = locks.semaphore("permits", 5000).with_lease(long()).acquire_many(7).await.unwrap();
    let short = locks.semaphore("permits", 5000).with_lease(LeaseOptions::new(TTL).with_auto_renew(false));
    let held = try_join_all((0..HELD).map(|_| short.acquire())).await.unwrap();
    assert_eq!(short.available().await.unwrap(), 5000 - HELD - 7);
    tokio::time::sleep(TTL + ms(100)).await;
    assert_eq!(short.available().await.unwrap(), 5000 - 7);
    drop(held);
    kept.release().await.unwrap();
}
