//! Several locks at once: one script, of which nobody sees a part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use lock_redis::multi::{Lockable, lock_all, try_lock_all};
use lock_redis::{ErrorKind, LockName, RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, calls, configured, eventually, key, long, obtain, runs, soon};

/// Two mutexes, one of them fenced, and a write lock.
fn three(locks: &RedisLocks) -> [Lockable; 3] {
    let write = Lockable::write(&locks.rwlock("b").with_lease(long()));
    let fenced = locks.mutex("c").with_lease(long()).fenced().unwrap();
    [locks.mutex("a").with_lease(long()).into(), write, fenced.into()]
}

/// Makes so many mutexes.
fn many(locks: &RedisLocks, count: usize) -> Vec<Lockable> {
    (0..count).map(|i| locks.mutex(format!("many/{i}")).with_lease(long()).into()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_locks_are_one_script_whether_they_are_granted_or_not() {
    let Some(server) = Server::start().await else { return };
    let (locks, other) = (server.client().await, server.client().await);
    // The first one carries the text of the script.
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    server.say("CONFIG RESETSTAT").await;
    let all = lock_all(three(&locks)).await.unwrap();
    assert_eq!(runs(&server).await, 1);
    let tokens: Vec<_> = all.fencing_tokens().map(|(_, token)| token.unwrap().as_u64()).collect();
    let held = server.run(&["GET", &key("a")]).await.as_text().unwrap();
    assert!(
        held.starts_with(&all.guards()[0].grant_id().to_string()) && held.ends_with(&tokens[0].to_string()),
        "{held}"
    );
    let written = server.run(&["HGET", "lock:rwlock:{b}", "#token"]).await.as_text().unwrap();
    assert_eq!(written, tokens[1].to_string());
    assert!(try_lock_all(three(&other)).await.unwrap().is_none());
    assert_eq!(runs(&server).await, 2);
    all.release().await.unwrap();
    let again = lock_all(three(&other)).await.unwrap();
    assert!(again.fencing_tokens().zip(tokens).all(|((_, token), before)| token.unwrap().as_u64() > before));
    again.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_lock_being_held_nobody_ever_sees_the_others_held() {
    let Some(server) = Server::start().await else { return };
    let holder = server.client().await;
    for last in ["c", "d"] {
        let last = |locks: &RedisLocks| match last {
            "c" => Lockable::from(locks.mutex("c").with_lease(long())),
            _ => Lockable::write(&locks.rwlock("d").with_lease(long())),
        };
        let held = lock_all([last(&holder)]).await.unwrap();
        let over = Arc::<AtomicBool>::default();
        let mut tries = Vec::new();
        for turn in 0..4 {
            let (locks, over) = (server.client().await, over.clone());
            let last = last(&locks);
            tries.push(tokio::spawn(async move {
                let mut tries = 0;
                while !over.load(Ordering::Relaxed) {
                    let first: Lockable = match (turn + tries) % 3 {
                        0 => locks.mutex("a").into(),
                        1 => locks.mutex("b").into(),
                        _ => Lockable::write(&locks.rwlock("b")),
                    };
                    assert!(try_lock_all([first, last.clone()]).await.unwrap().is_none());
                    tries += 1;
                }
                tries
            }));
        }
        for _ in 0..300 {
            let seen = server.run(&["EXISTS", &key("a"), &key("b"), "lock:rwlock:{b}"]).await;
            assert_eq!(seen.as_int(), Some(0), "a part of them is held");
        }
        over.store(true, Ordering::Relaxed);
        for tries in soon("the last tries end", PROMPTLY, join_all(tries)).await {
            assert!(tries.unwrap() > 10);
        }
        held.release().await.unwrap();
    }
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_that_they_would_hold_the_server_up_are_taken_one_by_one() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    for (count, scripts) in [(64, 1), (65, 65)] {
        lock_all(many(&locks, count)).await.unwrap().release().await.unwrap();
        server.say("CONFIG RESETSTAT").await;
        let all = lock_all(many(&locks, count)).await.unwrap();
        // A machine that stands still lets a probe be sent, which is no script that the server knows.
        assert_eq!(calls(&server, "evalsha").await, scripts, "{count} locks");
        all.release().await.unwrap();
    }
    let long = |letter: &str| locks.mutex(letter.repeat(1024));
    let names = (0..13).map(|i| long(&char::from(b'a' + i).to_string()));
    server.say("CONFIG RESETSTAT").await;
    let all = lock_all(names).await.unwrap();
    assert!(runs(&server).await >= 13, "more than 64 KiB in one script");
    all.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_of_the_dead_and_a_key_with_something_else_are_found_one_by_one() {
    let Some(server) = Server::start().await else { return };
    let (locks, other) = (server.client().await, server.client().await);
    for (lock, is_mutex) in [(key("b"), true), ("lock:rwlock:{b}".to_owned(), false)] {
        let both = |locks: &RedisLocks| {
            let mutex = Lockable::from(locks.mutex("b").with_lease(long()));
            let one = if is_mutex { mutex } else { Lockable::write(&locks.rwlock("b").with_lease(long())) };
            [locks.mutex("a").with_lease(long()).into(), one]
        };
        let held = lock_all(both(&other).into_iter().skip(1)).await.unwrap();
        assert!(try_lock_all(both(&locks)).await.unwrap().is_none());
        // As if a client that waited had died a while ago, and the holder with it.
        let (client, nonce) = (format!("{:016x}", 1), format!("{:032x}", 1));
        server.run(&["ZADD", &format!("{lock}:q"), "1", &format!("{nonce}:{client}")]).await;
        server.run(&["HSET", &format!("{lock}:w"), &nonce, "1000W{}", &format!("@{client}"), "1", "#group", "W"]).await;
        if is_mutex {
            server.run(&["HDEL", &format!("{lock}:w"), "#group"]).await;
        }
        server.run(&["DEL", &lock]).await;
        drop(held);
        let all =
            eventually("the dead one is found", PROMPTLY, async || try_lock_all(both(&locks)).await.unwrap()).await;
        all.release().await.unwrap();
    }
    let both = || [locks.mutex("a").with_lease(long()), locks.mutex("b").with_lease(long())];
    server.run(&["RPUSH", &key("b"), "foreign"]).await;
    let error = try_lock_all(both()).await.unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Protocol, Some("b")), "{error}");
    server.run(&["DEL", &key("b")]).await;
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_cannot_be_two_kinds_of_lock_at_once() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let name = || LockName::from_key("jobs").unwrap();
    let error = try_lock_all([locks.mutex(name()).into(), Lockable::write(&locks.rwlock(name()))]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    obtain(&locks, name(), PROMPTLY).await.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_sending_took_is_released_if_the_next_one_is_refused() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let locks = configured(RedisConfig::new(format!("redis://{}", proxy.address()))).await.unwrap();
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    for direction in [Direction::ToClient, Direction::ToServer] {
        // The reply is lost, or the request; then it is sent again, and everything is as if it had not been.
        let lost = proxy.inject(LinkFault::new(Toxic::Reset, direction).on_request(1, key("a")));
        let all = soon("the try ends", PROMPTLY, try_lock_all(three(&locks))).await.unwrap().expect("all are free");
        lost.heal().unwrap();
        all.release().await.unwrap();
    }
    let lost = proxy.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, key("a")));
    let refused = proxy.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let trying = tokio::spawn(try_lock_all(three(&locks)));
    eventually("they are taken", PROMPTLY, async || {
        (server.run(&["EXISTS", &key("a"), "lock:rwlock:{b}", &key("c")]).await.as_int() == Some(3)).then_some(())
    })
    .await;
    eventually("the reply is lost", PROMPTLY, async || lost.proven().is_ok().then_some(())).await;
    // By force: somebody else has one of them when it is sent again; and somebody waits for another one.
    server.run(&["SET", &key("c"), "somebody", "PX", "60000"]).await;
    let next = tokio::spawn({
        let mutex = server.client().await.mutex("a").with_lease(long());
        async move { mutex.lock().await.unwrap().release().await.unwrap() }
    });
    server.until_queued("a", 1).await;
    lost.heal().unwrap();
    refused.heal().unwrap();
    let outcome = soon("the try ends", PROMPTLY, trying).await.unwrap();
    match outcome {
        Ok(all) => assert!(all.is_none(), "granted although somebody holds one: {all:?}"),
        Err(error) => assert!(!error.is_definite(), "{error}"),
    }
    soon("the next one is granted", HAND_OVER + SLACK, next).await.unwrap();
    eventually("what was taken is free", SLACK, async || {
        (server.run(&["EXISTS", &key("a"), "lock:rwlock:{b}"]).await.as_int() == Some(0)).then_some(())
    })
    .await;
    assert_eq!(server.run(&["GET", &key("c")]).await.as_text().unwrap(), "somebody");
    server.run(&["DEL", &key("c")]).await;
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_is_never_answered_is_unknown_and_all_of_it_is_released() {
    let Some(server) = Server::start().await else { return };
    let proxy = Proxy::to(server.address(), Protocol::Resp).unwrap();
    let locks = configured(RedisConfig::new(format!("redis://{}", proxy.address()))).await.unwrap();
    lock_all(three(&locks)).await.unwrap().release().await.unwrap();
    let silent = proxy.inject(LinkFault::new(Toxic::Blackhole, Direction::ToClient));
    let error = soon("the try ends", PROMPTLY, try_lock_all(three(&locks))).await.unwrap_err();
    assert_eq!((error.kind(), error.is_definite()), (ErrorKind::Indeterminate, false), "{error}");
    silent.heal().unwrap();
    eventually("all of them are free", PROMPTLY, async || {
        (server.run(&["EXISTS", &key("a"), "lock:rwlock:{b}", &key("c")]).await.as_int() == Some(0)).then_some(())
    })
    .await;
    server.has_nothing_left().await;
}
