//! A client that reads a lock's item and does not take the answer: the server then changes a copy of it, and says of the
//! copy's TTL what it told the other one.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, config, eventually, open, pass, server};

/// The first answer fills the connection; the lock's item is kept for the second one, which is never sent.
fn slow_reader(server: &MemcachedServer) -> TcpStream {
    let mut reader = TcpStream::connect(server.address()).unwrap();
    reader.write_all(&b"mg big v\r\nmg lock:mutex:held v\r\nmg big v\r\n".repeat(12)).unwrap();
    reader
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
            readers.push(slow_reader(&server));
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
        let hits = async || server.client().stats("").await.unwrap()["get_hits"].parse::<u64>().unwrap();
        let before = hits().await;
        let reader = slow_reader(&server);
        eventually("the server has read the item for it", async || hits().await >= before + 2).await;
        guard.leave(LEASE).await.unwrap();
        eventually("the lock ends", async || locks.mutex("held").try_lock().await.unwrap().is_some()).await;
        drop(reader);
    });
}
