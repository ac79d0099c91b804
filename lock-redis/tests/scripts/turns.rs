//! Turns at a key that is shared with Redisson, whose waiting clients can be counted.

use lock_testkit_servers::redis::RedisServer;
use redis::aio::PubSub;

use crate::lock::{ALL, CHANNELS, Lock, server, texts};
use crate::redisson::REDISSON;

/// Waiters of ours, each of a client of its own.
const A: &str = "0000000000000000000000000000000a";
const B: &str = "0000000000000000000000000000000b";

/// A key for which these two wait, and some of Redisson's clients.
struct Shared {
    lock: Lock,
    /// Clients of Redisson's listen as long as they wait.
    waiting: Vec<PubSub>,
}

impl Shared {
    async fn new(server: &RedisServer, name: &str, waiting: usize) -> Self {
        let lock = Lock::new(server.client().unwrap(), name);
        let mut shared = Self { lock, waiting: Vec::new() };
        let channel = format!("redisson_lock__channel:{}", shared.lock.key(""));
        for _ in 0..waiting {
            let mut one = redis::Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
            one.subscribe(&channel).await.unwrap();
            shared.waiting.push(one);
        }
        shared
    }

    /// One of Redisson's clients has it.
    async fn is_locked_by(&mut self, thread: &str) {
        let key = self.lock.key("");
        self.lock.command(&["HSET", &key, thread, "1"]).await;
        self.lock.command(&["PEXPIRE", &key, "30000"]).await;
    }

    async fn is_met(&mut self) {
        assert_eq!(self.heartbeat(A).await, "-4", "a foreign client holds it");
    }

    async fn is_unlocked(&mut self) {
        self.lock.ends_in(0).await;
        self.lock.now += 1000;
    }

    async fn ask(&mut self, nonce: &str) {
        let args = [nonce, &nonce[16..], "60000", "{}", "1", "", CHANNELS, "1", ""];
        self.lock.run(&REDISSON.acquire, &ALL, &args).await.unwrap();
    }

    /// The pause after which the client of this waiter asks again.
    async fn heartbeat(&mut self, nonce: &str) -> String {
        let args = [&nonce[16..], CHANNELS, "1", "7", "", nonce];
        texts(self.lock.run(&REDISSON.heartbeat, &ALL, &args).await.unwrap())[2].clone()
    }

    async fn release(&mut self, nonce: &str) {
        let args = [nonce, &nonce[16..], CHANNELS, "1", ""];
        self.lock.run(&REDISSON.release, &ALL, &args).await.unwrap();
    }

    async fn is_left_free(&mut self) {
        let pause = self.heartbeat(A).await;
        assert!(pause.parse::<i64>().unwrap() <= -1000, "{pause}");
        assert!(self.lock.look().await.0.held.is_empty());
    }

    async fn is_held_by(&mut self, nonce: &str) {
        let held = self.lock.look().await.0.held;
        assert!(held.get("#").is_some_and(|held| held.starts_with(nonce)), "{held:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_redissons_that_waits_has_a_turn_and_then_each_of_ours() {
    let Some(server) = server().await else { return };
    let mut shared = Shared::new(&server, "round", 2).await;
    shared.is_locked_by("one:1").await;
    for nonce in [A, B] {
        shared.ask(nonce).await;
    }
    shared.is_met().await;
    // Two wait behind the one that had it.
    for thread in ["two:1", "three:1"] {
        shared.is_unlocked().await;
        shared.is_left_free().await;
        shared.is_locked_by(thread).await;
        shared.is_met().await;
    }
    shared.is_unlocked().await;
    shared.heartbeat(A).await;
    shared.is_held_by(A).await;
    // One of ours comes again, behind the other.
    shared.release(A).await;
    shared.is_held_by(B).await;
    shared.ask(A).await;
    shared.release(B).await;
    shared.is_held_by(A).await;
    shared.ask(B).await;
    shared.release(A).await;
    assert!(shared.lock.look().await.0.held.is_empty(), "ours have had as many turns as theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_none_of_redissons_takes_is_ours() {
    let Some(server) = server().await else { return };
    let mut shared = Shared::new(&server, "unused", 2).await;
    shared.is_locked_by("one:1").await;
    shared.ask(A).await;
    shared.is_met().await;
    shared.is_unlocked().await;
    shared.is_left_free().await;
    shared.lock.now += 51_000;
    shared.heartbeat(A).await;
    shared.is_held_by(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_alone_beside_one_of_redissons_has_every_other_turn() {
    let Some(server) = server().await else { return };
    let mut shared = Shared::new(&server, "alone", 0).await;
    shared.is_locked_by("one:1").await;
    shared.ask(A).await;
    shared.is_met().await;
    shared.is_unlocked().await;
    shared.heartbeat(A).await;
    shared.is_held_by(A).await;
}
