//! A client that reads a lock's item and does not take the answer: the server then changes a copy of it, and says of the
//! copy's TTL what it told the other one.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, config, epoch_ends_at, eventually, open, pass, server};

/// The first answer fills the connection; this key's item is kept for the second one, which is never sent.
fn slow_reader(server: &MemcachedServer, key: &str) -> TcpStream {
    let mut reader = TcpStream::connect(server.address()).unwrap();
    reader.write_all(format!("mg big v\r\nmg {key} v\r\nmg big v\r\n").repeat(12).as_bytes()).unwrap();
    reader
}

/// The items that the server has read for somebody.
async fn hits(server: &MemcachedServer) -> u64 {
    server.client().stats("").await.unwrap()["get_hits"].parse().unwrap()
}

const BETWEEN_READERS: Duration = Duration::from_millis(40);

#[test]
fn a_slow_reader_of_its_item_does_not_cost_a_holder_its_lock() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let (locks, other) = (open(&server).await, open(&server).await);
        let big = "x".repeat(900_000);
        assert!(server.client().add("big", &big, 0).await.unwrap());
        let guard = locks.mutex("held").lock().await.unwrap();
        let until = std::time::Instant::now() + LEASE * 4;
        let mut readers = Vec::new();
        while std::time::Instant::now() < until {
            readers.push(slow_reader(&server, "lock:mutex:held"));
            let refused = other.mutex("held").try_lock().await.unwrap().is_none();
            assert!(guard.is_held(), "the renewals did not count");
            assert!(refused, "the item ended although its holder was told that it was renewed");
            pass(BETWEEN_READERS).await;
        }
        drop(readers);
        guard.release().await.unwrap();
    });
}

/// Longer than any bound of these tests, were it to last to its end.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_slow_reader_of_its_item_does_not_keep_a_lock_that_was_left_for_less() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        let config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LONG);
        let locks = MemcachedLocks::connect_with(config).await.unwrap();
        assert!(server.client().add("big", &"x".repeat(900_000), 0).await.unwrap());
        let guard = locks.mutex("held").with_ttl(LONG).lock().await.unwrap();
        let before = hits(&server).await;
        let reader = slow_reader(&server, "lock:mutex:held");
        eventually("the server has read the item for it", async || hits(&server).await >= before + 2).await;
        guard.leave(LEASE).await.unwrap();
        eventually("the lock ends", async || locks.mutex("held").try_lock().await.unwrap().is_some()).await;
        drop(reader);
    });
}

/// With the former end, every lease would be over in thirty days.
#[test]
fn a_slow_reader_of_the_closed_epoch_does_not_keep_its_end_for_the_open_one() {
    about_time(async || {
        let Some(server) = server(MemcachedOptions::new()).await else { return };
        assert!(server.client().add("big", &"x".repeat(900_000), 0).await.unwrap());
        let locks = MemcachedLocks::connect_with(config(&server)).await.unwrap();
        assert!(locks.mutex("first").try_lock().await.is_err(), "the epoch is closed");
        let before = hits(&server).await;
        let reader = slow_reader(&server, "lock:epoch");
        eventually("the server has read the epoch for it", async || hits(&server).await >= before + 2).await;
        locks.mutex("first").try_lock_for(LONG).await.unwrap().unwrap().release().await.unwrap();
        let left = epoch_ends_at(&server).await - std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        assert!(left > 31 * 24 * 60 * 60, "it ends in {left} s");
        drop(reader);
    });
}
