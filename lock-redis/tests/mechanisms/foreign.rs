//! A key that is shared with other libraries, down to the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use lock_redis::LockName;
use lock_testkit_servers::redis::RedisOptions;
use lock_testkit_servers::resp::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::server::{HAND_OVER, PROMPTLY, SLACK, Server, eventually, key, long, ms, obtain, soon};

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_excludes_us_whatever_its_bytes_and_its_deletion_lets_us_in() {
    let Some(server) = Server::start().await else { return };
    let (a, b) = (server.client().await, server.client().await);
    let binary = [&b"\xff\xfe\x00 \r\n"[..], &[0x80; 40]].concat();
    let alike = format!("{}:0123456789abcdef:no json", "0".repeat(32));
    let values: [&[u8]; 6] = [b"1", b"", &binary, &[b'!'; 60], alike.as_bytes(), b"0f8fad5bd9cb469fa16570867728950e"];
    for value in values {
        let jobs = || LockName::from_key("jobs").unwrap();
        let put: [&[u8]; 6] = [b"SET", b"jobs", value, b"NX", b"PX", b"30000"];
        assert!(server.run(&put).await.is_ok());
        assert!(a.mutex(jobs()).try_lock().await.unwrap().is_none());
        assert!(a.mutex(jobs()).try_lock_for(ms(100)).await.unwrap().is_none());
        let seen = a.mutex(jobs()).inspect().await.unwrap();
        assert!(seen.holders.len() == 1 && seen.holders[0].owner.is_none(), "{seen:?}");
        let in_turn = [&a, &b].map(|locks| {
            let turn = obtain(locks, jobs(), PROMPTLY);
            tokio::spawn(async move { turn.await.release().await.unwrap() })
        });
        let queue = async || (a.mutex(jobs()).inspect().await.unwrap().waiters.len() == 2).then_some(());
        eventually("two are in the queue", PROMPTLY, queue).await;
        // Our waiters have left the foreign value as it was.
        assert_eq!(server.say("GET jobs").await, Value::Bulk(value.to_vec()));
        server.say("DEL jobs").await;
        soon("both in turn", HAND_OVER * 2 + SLACK, try_join_all(in_turn)).await.unwrap();
        assert_eq!(server.say("EXISTS jobs").await.as_int(), Some(0));
        server.has_nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_holder_without_expiry_is_followed_too() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let jobs = LockName::from_key("jobs").unwrap();
    assert!(server.say("SETNX jobs somebody").await.as_int() == Some(1));
    let mut waiting = tokio::spawn(obtain(&locks, &jobs, PROMPTLY));
    assert!(tokio::time::timeout(ms(300), &mut waiting).await.is_err(), "granted although somebody holds the key");
    server.say("DEL jobs").await;
    let held = soon("granted", HAND_OVER + SLACK, waiting).await.unwrap();
    // Ours is a plain string with an expiry: what other libraries call taken.
    assert!(server.say("SET jobs other NX PX 1000").await == Value::Nil);
    assert_eq!(server.say("TYPE jobs").await.as_text().as_deref(), Some("string"));
    assert!(server.say("PTTL jobs").await.as_int() > Some(0));
    held.release().await.unwrap();
    server.has_nothing_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_in_the_place_of_our_own_lock_excludes_too_and_nothing_of_it_is_touched() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    let held = locks.mutex("foreign").with_lease(long()).lock().await.unwrap();
    server.run(&["SET", &key("foreign"), "somebody", "PX", "30000"]).await;
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), lock_redis::ErrorKind::NotHeld, "{error}");
    assert!(locks.mutex("foreign").try_lock().await.unwrap().is_none());
    assert_eq!(server.run(&["GET", &key("foreign")]).await.as_text().as_deref(), Some("somebody"));
    server.run(&["DEL", &key("foreign")]).await;
    server.is_as_new(&locks, "foreign").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_key_that_is_found_free_is_not_left_free_once_more() {
    let Some(server) = Server::start().await else { return };
    let locks = server.client().await;
    server.say("SET found foreign NX PX 60000").await;
    let [one, other] = ["one", "other"].map(|_| locks.mutex(LockName::from_key("found").unwrap()));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { one.lock().await.unwrap() });
    waiting.spawn(async move { other.lock().await.unwrap() });
    let [queue, waiters] = ["q", "w"].map(|ending| format!("lock:key:{{found}}:found:{ending}"));
    eventually("both wait", PROMPTLY, async || {
        (server.run(&["ZCARD", &queue]).await.as_int() == Some(2)).then_some(())
    })
    .await;
    // Ours had the key for longer than a run may last, and then the foreign client.
    server.run(&["HSET", &waiters, "#since", "1"]).await;
    server.say("DEL found").await;
    let held = soon("one of them gets it", PROMPTLY, waiting.join_next()).await.unwrap().unwrap();
    assert_eq!(server.run(&["HGET", &waiters, "#yield"]).await.as_text().as_deref(), Some("0"));
    held.release().await.unwrap();
    let held = soon("so does the other", PROMPTLY, waiting.join_next()).await.unwrap().unwrap();
    held.release().await.unwrap();
}

/// The number of times that each contender had the key: ours, and last the foreign poller.
type Shares = Arc<[AtomicU32; 3]>;

/// Two clients of ours and a foreign poller take turns until there have been this many grants.
async fn turns(server: &Server, hold: Duration, wanted: u32) -> [u32; 3] {
    let shares = Shares::default();
    let over = move |shares: &Shares| shares.iter().map(|share| share.load(Ordering::SeqCst)).sum::<u32>() >= wanted;
    let mut contenders = JoinSet::new();
    for place in 0..2 {
        let (mutex, shares) = (server.client().await.mutex(LockName::from_key("turns").unwrap()), shares.clone());
        let mutex = mutex.with_lease(long());
        contenders.spawn(async move {
            while !over(&shares) {
                let held = mutex.lock().await.unwrap();
                shares[place].fetch_add(1, Ordering::SeqCst);
                sleep(hold).await;
                held.release().await.unwrap();
            }
        });
    }
    let (resp, theirs) = (server.stranger(), shares.clone());
    contenders.spawn(async move {
        while !over(&theirs) {
            if resp.command(&["SET", "turns", "foreign", "NX", "PX", "30000"]).await.unwrap() != Value::Nil {
                theirs[2].fetch_add(1, Ordering::SeqCst);
                sleep(hold).await;
                resp.command(&["DEL", "turns"]).await.unwrap();
            }
            sleep(ms(5)).await;
        }
    });
    while let Some(ended) = soon("the turns go on", PROMPTLY + hold * wanted, contenders.join_next()).await {
        ended.unwrap();
    }
    shares.each_ref().map(|share| share.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_poller_and_two_clients_of_ours_have_their_shares() {
    let Some(server) = Server::start().await else { return };
    for (hold, wanted) in [(ms(50), 60), (ms(300), 18)] {
        let shares = turns(&server, hold, wanted).await;
        assert!(shares.iter().all(|share| *share >= wanted / 6), "of {wanted} holds of {hold:?}: {shares:?}");
    }
}

/// The number of connections that are told of changes.
async fn ears(server: &Server) -> usize {
    let clients = server.say("CLIENT LIST").await.as_text().unwrap();
    let flags = clients.lines().filter_map(|client| client.split(" flags=").nth(1));
    flags.filter(|flags| flags.split(' ').next().unwrap().contains('t')).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_changes_of_a_shared_key_are_soon_heard_again() {
    // The server keeps the key, so that the waiter does not come in when it is there before anybody else.
    let Some(server) = Server::start_with(&RedisOptions::new().persistent()).await else { return };
    let locks = server.client().await;
    let jobs = LockName::from_key("jobs").unwrap();
    assert!(server.say("SET jobs foreign NX PX 30000").await.is_ok());
    let waiting = tokio::spawn(obtain(&locks, &jobs, PROMPTLY));
    eventually("the key is tracked", PROMPTLY, async || (ears(&server).await == 1).then_some(())).await;
    // Long enough for the connection to count as one that was of use.
    sleep(ms(1200)).await;
    server.restart().await;
    eventually("it is tracked again", HAND_OVER + SLACK, async || (ears(&server).await == 1).then_some(())).await;
    assert!(!waiting.is_finished(), "the waiter came in beside the foreign holder");
    server.say("DEL jobs").await;
    soon("granted", HAND_OVER + SLACK, waiting).await.unwrap().release().await.unwrap();
}
