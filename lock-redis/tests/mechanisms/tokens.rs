//! Fencing tokens, when the counter is deleted, is ahead of the clock, or changes hands quickly.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_redis::{FencingToken, MutexGuard, RedisLocks};

use crate::queue::QueuedTasks;
use crate::server::{COUNTER, PROMPTLY, Server, long, ms, obtain, soon};

/// A token, and the one of who waited behind its holder.
async fn two_tokens(server: &Server, a: &RedisLocks, b: &RedisLocks) -> [u64; 2] {
    let value = |held: &MutexGuard| held.fencing_token().unwrap().as_u64();
    let first = obtain(a, "tokens", PROMPTLY).await;
    let waiting = tokio::spawn(obtain(b, "tokens", PROMPTLY));
    server.until_queued("tokens", 1).await;
    let tokens = value(&first);
    first.release().await.unwrap();
    let second = soon("handed over", PROMPTLY, waiting).await.unwrap();
    let tokens = [tokens, value(&second)];
    second.release().await.unwrap();
    tokens
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_when_the_last_one_is_forgotten() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let mut last = 0;
    for _ in 0..10 {
        for token in two_tokens(&server, &a, &b).await {
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        server.run(&["DEL", COUNTER]).await;
    }
    // Forgotten while somebody waits.
    let held = a.mutex("tokens").with_lease(long()).lock().await.unwrap();
    let queue = QueuedTasks::up(&server, &[&a, &b], "tokens", 3).await;
    server.run(&["DEL", COUNTER]).await;
    assert!(b.mutex("tokens").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    assert_eq!(queue.order(PROMPTLY).await, [0, 1, 2]);
    server.is_as_new(&a, "tokens").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_above_the_last_one_when_the_clock_was_set_back_by_half_an_hour() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let time = server.say("TIME").await.into_parts();
    let time: Vec<u64> = time.iter().map(|part| part.as_text().unwrap().parse().unwrap()).collect();
    let now = time[0] * 1_000_000 + time[1];
    let ahead = now + Duration::from_secs(30 * 60).as_micros() as u64;
    // As it was written by the clock before: it is to be remembered for two hours from then.
    server.run(&["SET", COUNTER, &ahead.to_string(), "PX", "7200000"]).await;
    let mut last = ahead;
    for round in 0..10 {
        for token in two_tokens(&server, &a, &b).await {
            assert!(token > last, "{token} after {last}");
            assert!(token < ahead + 1_000, "a jump to {token}");
            last = token;
        }
        let held = obtain(&a, "tokens", PROMPTLY).await;
        let token = held.fencing_token().unwrap();
        assert!(token.as_u64() > last, "round {round}: {token} after {last}, on the short way");
        last = token.as_u64();
        held.release().await.unwrap();
    }
    // Remembered until an hour after the clock has caught up.
    let remembered = server.run(&["PTTL", COUNTER]).await.as_int().unwrap();
    assert!(remembered > (30 + 60) * 60 * 1000, "for {remembered} ms");
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_through_any_mix_of_free_and_contended_grants() {
    let Some(server) = Server::start().await else { return };
    let clients = [server.client().await, server.client().await];
    let seen = Arc::<Mutex<Vec<FencingToken>>>::default();
    let tasks: Vec<_> = (0..8_u64)
        .map(|task| {
            let mutex = clients[task as usize % 2].mutex("tokens").with_lease(long());
            let seen = seen.clone();
            tokio::spawn(async move {
                for turn in 0..60_u64 {
                    let held = match (task + turn) % 4 {
                        0 => mutex.try_lock().await.unwrap(),
                        1 => mutex.try_lock_for(ms(3)).await.unwrap(),
                        _ => Some(mutex.lock().await.unwrap()),
                    };
                    if let Some(held) = held {
                        // Noted while it is held: the order of the notes is the order of the grants.
                        seen.lock().unwrap().push(held.fencing_token().unwrap());
                        held.release().await.unwrap();
                    }
                    // Now and then all are outside, and the next one finds it free.
                    if turn % 10 == task {
                        tokio::time::sleep(ms(10)).await;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        soon("a task ends", PROMPTLY * 3, task).await.unwrap();
    }
    for turn in 0..60 {
        let held = obtain(&clients[turn % 2], "tokens", PROMPTLY).await;
        seen.lock().unwrap().push(held.fencing_token().unwrap());
        held.release().await.unwrap();
    }
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() >= 300, "only {} grants", seen.len());
    let back = seen.windows(2).find(|pair| pair[0] >= pair[1]);
    assert_eq!(back, None, "a token that did not grow");
    server.has_nothing_left().await;
}
