//! Writers that wait for readers, while others come and go.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_memcached::{Error, MemcachedLocks, RestartPolicy, WriteGuard};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use tokio::task::JoinHandle;

use crate::support::{LEASE, client, eventually, far, pass, server};

/// A lease that no machine's hiccup outlasts.
const LONG: Duration = Duration::from_secs(300);
const WRITER: &str = "lock:rwlock:a:w";

fn slot(number: u32) -> String {
    format!("lock:rwlock:a:{number}")
}

/// Has somebody read in this slot.
async fn reads(server: &MemcachedServer, number: u32) {
    assert!(server.client().add(&slot(number), "1234567890123456789", 0).await.unwrap());
}

async fn leaves(server: &MemcachedServer, number: u32) {
    assert!(server.client().delete(&slot(number)).await.unwrap());
}

async fn has_key(server: &MemcachedServer) -> bool {
    server.client().get(WRITER).await.unwrap().is_some()
}

/// Has a writer wait that has seen who reads.
async fn writes(locks: &MemcachedLocks) -> JoinHandle<Result<WriteGuard, Error>> {
    let lock = locks.rwlock("a").with_ttl(LONG);
    let writing = tokio::spawn(async move { lock.write().await });
    eventually("it waits", async || locks.rwlock("a").inspect().await.unwrap().waiters.len() == 1).await;
    writing
}

/// The number of looks at the server.
async fn looks(server: &MemcachedServer) -> u64 {
    server.client().stats("").await.unwrap()["cmd_get"].parse().unwrap()
}

/// Checks that a writer with its key looks again and again, and is granted nothing.
async fn waits<T>(server: &MemcachedServer, writing: &JoinHandle<T>) {
    eventually("its key is there", async || has_key(server).await).await;
    let before = looks(server).await;
    eventually("it looks", async || looks(server).await > before + 40).await;
    assert!(!writing.is_finished(), "granted beside a reader");
}

/// Two come to other slots, and one to that of a reader who has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_waits_for_the_readers_that_were_there_before_it_and_for_no_others() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (_link, locks) = far(&server, RestartPolicy::Off).await;
    for number in [0, 1] {
        reads(&server, number).await;
    }
    let writing = writes(&locks).await;
    for number in [2, 3] {
        reads(&server, number).await;
    }
    leaves(&server, 1).await;
    waits(&server, &writing).await;
    let (_, unchanged) = server.client().gets(&slot(0)).await.unwrap().unwrap();
    assert!(server.client().cas(&slot(0), "1234567890123456780", 0, unchanged).await.unwrap());
    let granted = tokio::time::timeout(ms(15_000), writing).await.expect("readers that give way keep it out");
    granted.unwrap().unwrap().release().await.unwrap();
}

/// Its key is gone, and one comes before it has it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_has_lost_its_key_waits_for_readers_that_came_meanwhile() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (_link, locks) = far(&server, RestartPolicy::Off).await;
    reads(&server, 0).await;
    let writing = writes(&locks).await;
    assert!(server.client().delete(WRITER).await.unwrap());
    reads(&server, 5).await;
    leaves(&server, 0).await;
    waits(&server, &writing).await;
    leaves(&server, 5).await;
    writing.await.unwrap().unwrap().release().await.unwrap();
}

/// Its key is gone, and one comes before it is there again with the same number, as by a claim that was carried out late. Over a new
/// connection its item looks like the one that it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_whose_key_was_gone_for_a_moment_waits_for_readers_that_came_meanwhile() {
    const SHORT: u64 = 100;
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let (link, locks) = far(&server, RestartPolicy::Off).await;
    reads(&server, 0).await;
    let writing = writes(&locks).await;
    let own = String::from_utf8(server.client().get(WRITER).await.unwrap().unwrap()).unwrap();
    assert!(server.client().delete(WRITER).await.unwrap());
    reads(&server, 5).await;
    assert!(server.client().add(WRITER, &own, SHORT).await.unwrap());
    let cut = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    cut.applied(ms(15_000)).await.unwrap();
    cut.heal().unwrap();
    leaves(&server, 0).await;
    eventually("it renews its key", async || {
        let left = server.client().command(&format!("mg {WRITER} t")).await.unwrap();
        left.strip_prefix("HD t").is_some_and(|left| left.parse::<u64>().unwrap() > SHORT)
    })
    .await;
    waits(&server, &writing).await;
    leaves(&server, 5).await;
    writing.await.unwrap().unwrap().release().await.unwrap();
}

/// A client that waits for all permits of so many semaphores pauses for 20 s and more between two looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_writer_keeps_its_key_however_much_its_client_looks_at() {
    const SEMAPHORES: u64 = 40;
    const PERMITS: u32 = 1000;
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    let before = looks(&server).await;
    for name in 0..SEMAPHORES {
        assert!(server.client().add(&format!("lock:semaphore:{name}:0"), "1234567890123456789", 0).await.unwrap());
        let permits = locks.semaphore(format!("{name}"), PERMITS);
        tokio::spawn(async move { permits.acquire_many(PERMITS).await });
    }
    let all = SEMAPHORES * u64::from(PERMITS);
    eventually("all of them are looked at", async || looks(&server).await >= before + all).await;
    reads(&server, 0).await;
    let lock = locks.rwlock("a").with_ttl(LEASE);
    let writing = tokio::spawn(async move { lock.write().await });
    eventually("its key is there", async || has_key(&server).await).await;
    let (mut numbers, number) = (BTreeSet::new(), async || server.client().gets(WRITER).await.unwrap());
    eventually("its key is renewed", async || {
        numbers.insert(number().await.expect("its key has ended").1);
        numbers.len() >= 5
    })
    .await;
    assert!(!writing.is_finished(), "granted beside a reader");
}

/// Enough readers for a slot to be taken at almost every moment.
#[test]
fn readers_that_only_try_do_not_keep_a_waiting_writer_out() {
    const READERS: usize = 16;
    const RELEASED: Duration = Duration::from_secs(2);
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (link, trying) = far(&server, RestartPolicy::Off).await;
        let (_link, waiting) = far(&server, RestartPolicy::Off).await;
        let reader = trying.rwlock("a").with_ttl(LONG).read().await.unwrap();
        let slow = Toxic::Delay { by: ms(20), jitter: Duration::ZERO };
        let _slow = link.inject(LinkFault::new(slow, Direction::ToServer));
        let done = Arc::new(AtomicBool::new(false));
        let tries = |_| {
            let (lock, done) = (trying.rwlock("a").with_ttl(LONG), done.clone());
            tokio::spawn(async move {
                while !done.load(Ordering::Relaxed) {
                    if let Ok(Some(guard)) = lock.try_read().await {
                        let _ = guard.release().await;
                    }
                    pass(ms(5)).await;
                }
            })
        };
        let tries: Vec<_> = (0..READERS).map(tries).collect();
        let lock = waiting.rwlock("a").with_ttl(LONG);
        let writing = tokio::spawn(async move { lock.write().await });
        eventually("the writer waits", async || has_key(&server).await).await;
        reader.release().await.unwrap();
        let granted = tokio::time::timeout(RELEASED, writing).await;
        done.store(true, Ordering::Relaxed);
        futures_util::future::join_all(tries).await;
        granted.expect("tries keep it out").unwrap().unwrap().release().await.unwrap();
    });
}
