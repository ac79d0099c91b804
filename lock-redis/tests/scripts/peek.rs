//! The short poke does what the long one does, or nothing.

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::script::{self, MUTEX};

const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";
const C: &str = "0000000000000000000000000000000c";

async fn ask(lock: &mut Lock, nonce: &str) {
    let args = [nonce, &nonce[16..], "60000", "{}", "1", "", CHANNELS, "", "2000", ""];
    lock.run(&MUTEX.acquire, &ALL, &args).await.unwrap();
}

/// What it says of the lock: ms, or -5.
async fn peek(lock: &mut Lock, nonce: &str) -> i64 {
    let args = [&nonce[16..], CHANNELS, "7", "", nonce];
    let reply = texts(lock.run(&script::PEEK, &ALL[..3], &args).await.unwrap());
    assert_eq!((&*reply[0], reply.len()), ("7", 2));
    reply[1].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_poke_leaves_what_a_long_one_leaves() {
    let Some(server) = server().await else { return };
    let (mut short, mut long) =
        (Lock::new(server.client().unwrap(), "short"), Lock::new(server.client().unwrap(), "long"));
    for nonce in [A, B] {
        ask(&mut short, nonce).await;
    }
    short.copy_to(&long).await;
    for pause in [1, 700_000, 1_400_000] {
        short.now += pause;
        long.now = short.now;
        assert!((1..=60_000).contains(&peek(&mut short, B).await));
        let poked = long.run(&MUTEX.poke, &ALL, &[&B[16..], CHANNELS, "", "7", "", B]).await.unwrap();
        assert_eq!(texts(poked)[1..2], ["1"]);
        assert_eq!(short.look().await.0, long.look().await.0);
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
        assert_eq!(peek(&mut lock, nonce).await, -5);
        assert_eq!(lock.look().await.0, before);
    };
    // Not in the queue, or in nobody's.
    unchanged(lock("stranger").await, C).await;
    unchanged(Lock::new(server.client().unwrap(), "empty"), B).await;
    // The client holds it.
    unchanged(lock("holder").await, A).await;
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
    let args = [&B[16..], CHANNELS, "7", "", B];
    let mut foreign = foreign;
    assert_eq!(texts(foreign.run(&script::PEEK, &ALL[..3], &args).await.unwrap())[1], "-5");
}
