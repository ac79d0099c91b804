//! A mutex that is left: under another nonce, for a time of the holder's choice.

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::redisson::{self, REDISSON};
use crate::scripts::{self, MUTEX, Script, Scripts};

const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";
const LEFT: &str = "0000000000000000000000000000000f";
const CLIENT: &str = "00000000000000c1";

/// The mutex as it is kept by itself, and as it is shared with Redisson.
fn forms() -> [(&'static str, &'static Scripts, &'static Script); 2] {
    [("text", &MUTEX, &scripts::LEAVE), ("redisson", &REDISSON, &redisson::LEAVE)]
}

async fn asks(lock: &mut Lock, scripts: &'static Scripts, nonce: &str) -> Vec<String> {
    let args = [nonce, CLIENT, "20000", "{}", "1", "", CHANNELS, "", ""];
    texts(lock.run(&scripts.acquire, &ALL, &args).await.unwrap())
}

async fn leaves(lock: &mut Lock, leave: &'static Script, nonce: &str, ms: &str) -> Vec<String> {
    let forced = lock.key(":x");
    texts(lock.run(leave, &[""], &[nonce, LEFT, ms, &forced]).await.unwrap())
}

async fn ttl(lock: &mut Lock) -> i64 {
    let key = lock.key("");
    lock.command(&["PTTL", &key]).await.as_int().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_it_was_told_to_and_nothing_of_its_former_nonce_touches_it() {
    let Some(server) = server().await else { return };
    for (name, scripts, leave) in forms() {
        let mut lock = Lock::new(server.client().unwrap(), name);
        let token = asks(&mut lock, scripts, A).await[2].clone();
        // Somebody waits: the lock is marked.
        lock.now += 1;
        assert_eq!(asks(&mut lock, scripts, B).await[1], "0");
        let before = lock.look().await.0.held;
        assert_eq!(leaves(&mut lock, leave, A, "60000").await, [A, "1"], "{name}");
        let left = lock.look().await.0.held;
        let renamed = |text: &String| text.replace(A, LEFT);
        assert_eq!(left, before.iter().map(|(field, value)| (renamed(field), renamed(value))).collect(), "{name}");
        assert!(left.values().any(|held| held.contains(&token)), "{name}: {left:?}");
        assert!((20_001..=60_000).contains(&ttl(&mut lock).await), "{name}: not longer");
        // Once more, after a lost reply; now sooner.
        assert_eq!(leaves(&mut lock, leave, A, "5000").await, [A, "1"], "{name}");
        assert!((1..=5000).contains(&ttl(&mut lock).await), "{name}: not sooner");
        let forced = lock.key(":x");
        let renewed = texts(lock.run(&scripts.renew, &[""], &[A, "20000", &forced]).await.unwrap());
        assert_eq!(renewed, [A, "0", ""], "{name}");
        let released = texts(lock.run(&scripts.release, &ALL, &[A, CLIENT, CHANNELS, "", ""]).await.unwrap());
        assert_eq!(released, [A, "0", ""], "{name}");
        lock.run(&scripts.cancel, &ALL, &[A, CLIENT, CHANNELS, "", ""]).await.unwrap();
        assert_eq!(lock.look().await.0.held, left, "{name}");
        assert!((1..=5000).contains(&ttl(&mut lock).await), "{name}: its end was moved");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_gone_or_anothers_is_not_touched() {
    let Some(server) = server().await else { return };
    for (name, scripts, leave) in forms() {
        let mut lock = Lock::new(server.client().unwrap(), format!("gone {name}"));
        assert_eq!(leaves(&mut lock, leave, A, "5000").await, [A, "0", ""], "{name}");
        assert!(lock.look().await.0.held.is_empty(), "{name}: it was brought back");
        asks(&mut lock, scripts, B).await;
        let before = lock.look().await.0.held;
        assert_eq!(leaves(&mut lock, leave, A, "5000").await, [A, "0", ""], "{name}");
        assert_eq!(lock.look().await.0.held, before, "{name}");
        assert!(ttl(&mut lock).await > 5000, "{name}");
        let forced = lock.key(":x");
        lock.command(&["SET", &forced, &format!("{A}:{{\"by\":1}}")]).await;
        assert_eq!(leaves(&mut lock, leave, A, "5000").await, [A, "0", "{\"by\":1}"], "{name}");
    }
}
