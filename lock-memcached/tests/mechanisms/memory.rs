//! A server whose memory is full.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_memcached::{ErrorKind, LeaseOptions, LossReason, RestartPolicy};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, open, pass, server};

/// The bytes of a lock's item.
const SMALL: usize = 19;

/// The batches of items so far.
static BATCHES: AtomicUsize = AtomicUsize::new(0);

/// Fills it with items of so many bytes, until there is no room, or so many.
async fn fill(server: &MemcachedServer, many: usize, bytes: usize) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    for _ in 0..many / 1000 {
        // No call makes the items of another one.
        let (batch, mut commands) = (BATCHES.fetch_add(1, Ordering::Relaxed), String::new());
        for i in 0..1000 {
            commands.push_str(&format!("set f:{batch:05}:{i:05} 0 0 {bytes} noreply\r\n{}\r\n", "1".repeat(bytes)));
        }
        stream.write_all(commands.as_bytes()).await.unwrap();
    }
    stream.write_all(b"mn\r\n").await.unwrap();
    // Refusals are said although no reply is wanted.
    let mut said = Vec::new();
    while !said.ends_with(b"MN\r\n") {
        assert!(stream.read_buf(&mut said).await.unwrap() > 0);
    }
}

#[test]
fn a_full_server_refuses_new_locks_and_keeps_the_held_ones() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new().with_memory(2)).await else { return };
        let (a, b) = (open(&server).await, open(&server).await);
        let held = a.mutex("held").lock().await.unwrap();
        fill(&server, 60_000, SMALL).await;
        let refused = b.mutex("othr").try_lock().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.is_definite(), "a refusal counts as unknown: {refused}");
        assert!(b.mutex("held").try_lock().await.unwrap().is_none(), "the holder's item is gone");
        // Without renewals it would have ended.
        pass(LEASE * 3 / 2).await;
        assert!(held.is_held(), "a held lock is not renewed any more");
        held.release().await.unwrap();
    });
}

/// Without the epoch nothing is granted or renewed until the longest lease is over.
#[test]
fn the_epoch_is_not_evicted_while_it_is_looked_at() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new().with_memory(2).evicting()).await else { return };
        let locks = open(&server).await;
        // Not a use of it.
        let epoch = async || server.client().command("mg lock:epoch c u").await.unwrap();
        let opened = epoch().await;
        assert!(opened.starts_with("HD c"), "{opened}");
        for portion in 0..120 {
            fill(&server, 1_000, SMALL).await;
            for _ in 0..3 {
                // The lock itself may be evicted at any time.
                drop(locks.mutex("a").try_lock().await);
            }
            assert_eq!(epoch().await, opened, "after {portion} portions");
        }
    });
}

#[test]
fn a_record_that_a_full_server_has_no_room_for_stays_as_it_was() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new().with_memory(2)).await else { return };
        let locks = open(&server).await;
        let jobs = locks.recorded("jobs").unwrap();
        let held = jobs.lock().await.unwrap();
        held.write(&[7; 300]).await.unwrap();
        fill(&server, 10_000, 700).await;
        let refused = held.write(&[8; 700]).await.unwrap_err();
        assert_eq!((refused.kind(), refused.is_definite()), (ErrorKind::Unavailable, true), "{refused}");
        let kept = jobs.peek().await.unwrap().expect("the server has forgotten the record");
        assert_eq!(kept.data, [7; 300]);
        held.release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_of_its_eviction_at_its_next_renewal() {
    let Some(server) = server(MemcachedOptions::new().with_memory(2).evicting()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    // Renewals are followed by a read, which the server takes for a sign of life: so this one is not renewed by itself.
    let lease = LeaseOptions::new(Duration::from_secs(60)).with_auto_renew(false);
    let held = locks.mutex("held").with_lease(lease).lock().await.unwrap();
    fill(&server, 120_000, SMALL).await;
    assert!(server.client().get("lock:mutex:held").await.unwrap().is_none(), "it was not evicted: fill in more");
    let error = held.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Taken)));
    assert!(!held.is_held());
}
