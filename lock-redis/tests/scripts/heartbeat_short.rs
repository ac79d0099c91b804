//! The short heartbeat does what the long one does, or nothing.

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::scripts::{self, MUTEX};

const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";
const D: &str = "d000000000000000000000000000000d";
const C: &str = "0000000000000000000000000000000c";
/// Another attempt of the first one's client.
const OF_A: &str = "e000000000000000000000000000000a";

async fn ask(lock: &mut Lock, nonce: &str) {
    let args = [nonce, &nonce[16..], "60000", "{}", "1", "", CHANNELS, "", ""];
    lock.run(&MUTEX.acquire, &ALL, &args).await.unwrap();
}

/// Its answer about the lock to a client that knows this holder.
async fn heartbeat_past(lock: &mut Lock, nonce: &str, holder: &str) -> String {
    let args = [&nonce[16..], CHANNELS, "7", "", nonce, holder];
    let reply = texts(lock.run(&scripts::HEARTBEAT_SHORT, &[ALL[0], ALL[2]], &args).await.unwrap());
    let [number, answer] = reply.try_into().unwrap();
    assert_eq!(number, "7");
    answer
}

/// Its answer about the lock.
async fn peek(lock: &mut Lock, nonce: &str) -> String {
    heartbeat_past(lock, nonce, "").await
}

/// The ms until queue and waiters are forgotten.
async fn left(lock: &Lock) -> [i64; 2] {
    let ttl = async |ending: &str| lock.command(&["PTTL", &lock.key(ending)]).await.as_int().unwrap();
    [ttl(":q").await, ttl(":w").await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_heartbeat_leaves_what_a_long_one_leaves() {
    let Some(server) = server().await else { return };
    for waiter in [B, OF_A] {
        let name = |way: &str| format!("{way}{waiter}");
        let (mut short, mut long) =
            (Lock::new(server.client().unwrap(), name("short")), Lock::new(server.client().unwrap(), name("long")));
        for nonce in [A, waiter] {
            ask(&mut short, nonce).await;
        }
        short.copy_to(&long).await;
        for pause in [1, 700_000, 1_400_000] {
            short.now += pause;
            long.now = short.now;
            let answer = heartbeat_past(&mut short, waiter, if pause == 1 { "" } else { &A[..16] }).await;
            if pause == 1 {
                let (ms, holder) = answer.split_once(':').expect("another grant holds it");
                assert!((1..=60_000).contains(&ms.parse().unwrap()) && holder == &A[..16], "{answer}");
            } else {
                assert_eq!(answer, "0");
            }
            let args = [&waiter[16..], CHANNELS, "", "7", "", waiter];
            assert_eq!(texts(long.run(&MUTEX.heartbeat, &ALL, &args).await.unwrap())[1..2], ["1"]);
            assert_eq!(short.look().await.0, long.look().await.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_usual_is_left_as_it_is() {
    let Some(server) = server().await else { return };
    let lock = async |name: &str| {
        let mut lock = Lock::new(server.client().unwrap(), name.to_owned());
        for nonce in [A, B] {
            ask(&mut lock, nonce).await;
        }
        lock
    };
    let unchanged = async |mut lock: Lock, nonce: &str| {
        let before = lock.look().await.0;
        assert_eq!(peek(&mut lock, nonce).await, "-5");
        assert_eq!(heartbeat_past(&mut lock, nonce, &C[..16]).await, "-5");
        assert_eq!(lock.look().await.0, before);
    };
    // Not in the queue, or in nobody's.
    unchanged(lock("stranger").await, C).await;
    unchanged(Lock::new(server.client().unwrap(), "empty"), B).await;
    // The waiter holds it, or got it from another attempt of its client.
    unchanged(lock("holder").await, A).await;
    let mut granted = Lock::new(server.client().unwrap(), "granted");
    for nonce in [A, OF_A, B] {
        ask(&mut granted, nonce).await;
    }
    granted.run(&MUTEX.release, &ALL, &[A, &A[16..], CHANNELS, "", ""]).await.unwrap();
    unchanged(granted, OF_A).await;
    // It is free.
    let free = lock("free").await;
    free.ends_in(0).await;
    unchanged(free, B).await;
    // The server stood still, or its clock was set back.
    for change in [1_600_000, -1_600_000] {
        let mut stalled = lock(&format!("stalled{change}")).await;
        stalled.now = stalled.now.saturating_add_signed(change);
        unchanged(stalled, B).await;
    }
    // Somebody else's data.
    let foreign = lock("foreign").await;
    foreign.command(&["DEL", &foreign.key(":w")]).await;
    foreign.command(&["SET", &foreign.key(":w"), "foreign"]).await;
    let mut foreign = foreign;
    assert_eq!(peek(&mut foreign, B).await, "-5");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_holder_than_the_known_one_is_told_with_its_end() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "another");
    for nonce in [D, B, C] {
        ask(&mut lock, nonce).await;
    }
    assert_eq!(heartbeat_past(&mut lock, C, &D[..16]).await, "0");
    lock.run(&MUTEX.release, &ALL, &[D, &D[16..], CHANNELS, "", ""]).await.unwrap();
    let answer = heartbeat_past(&mut lock, C, &D[..16]).await;
    let (ms, holder) = answer.split_once(':').unwrap();
    assert!((1..=2000).contains(&ms.parse().unwrap()) && holder == &B[..16], "a claim time: {answer}");
    lock.command(&["SET", &lock.key(""), "foreign", "PX", "5000"]).await;
    let ms: i64 = heartbeat_past(&mut lock, C, &B[..16]).await.parse().unwrap();
    assert!((1..=5000).contains(&ms), "{ms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn short_heartbeats_alone_keep_the_queue() {
    let Some(server) = server().await else { return };
    let mut lock = Lock::new(server.client().unwrap(), "kept");
    for nonce in [A, B] {
        ask(&mut lock, nonce).await;
    }
    for ending in [":q", ":w"] {
        lock.command(&["PEXPIRE", &lock.key(ending), "10000"]).await;
    }
    for _ in 0..9 {
        lock.now += 900_000;
        assert_ne!(peek(&mut lock, B).await, "-5");
    }
    assert!(left(&lock).await.iter().all(|ms| *ms > 20_000));
    // The last sign lies ahead, beyond the border of a period, as it may after a stall.
    let period = 8_000_000;
    lock.now = lock.now.next_multiple_of(period) - 1_000;
    let waiters = lock.key(":w");
    lock.command(&["HSET", &waiters, "#seen", &(lock.now / 1000 + 1000).to_string()]).await;
    for ending in [":q", ":w"] {
        lock.command(&["PEXPIRE", &lock.key(ending), "10000"]).await;
    }
    lock.now += 500_000;
    assert_ne!(peek(&mut lock, B).await, "-5");
    assert!(left(&lock).await.iter().all(|ms| *ms > 20_000));
    // A queue that was evicted is found too.
    lock.command(&["DEL", &lock.key(":q")]).await;
    let mut found = false;
    for _ in 0..9 {
        lock.now += 900_000;
        found |= peek(&mut lock, B).await == "-5";
    }
    assert!(found);
}
