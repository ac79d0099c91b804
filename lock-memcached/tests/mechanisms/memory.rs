//! A server whose memory is full.

use std::time::Duration;

use lock_memcached::{ErrorKind, LeaseOptions, LossReason, RestartPolicy};
use lock_testkit::testing::about_time;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{LEASE, client, open, pass, server};

/// Fills it with items as small as a lock's, until there is no room, or so many.
async fn fill(server: &MemcachedServer, many: usize) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.unwrap();
    for batch in 0..many / 1000 {
        let mut commands = String::new();
        for i in 0..1000 {
            commands.push_str(&format!("set f:{batch:05}:{i:05} 0 0 19 noreply\r\n1000000000000000001\r\n"));
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
        fill(&server, 60_000).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_learns_of_its_eviction_at_its_next_renewal() {
    let Some(server) = server(MemcachedOptions::new().with_memory(2).evicting()).await else { return };
    let locks = client(&server, RestartPolicy::Off).await;
    // Renewals are followed by a read, which the server takes for a sign of life: so this one is not renewed by itself.
    let lease = LeaseOptions::new(Duration::from_secs(60)).with_auto_renew(false);
    let held = locks.mutex("held").with_lease(lease).lock().await.unwrap();
    fill(&server, 120_000).await;
    assert!(server.client().get("lock:mutex:held").await.unwrap().is_none(), "it was not evicted: fill in more");
    let error = held.extend(Duration::from_secs(60)).await.unwrap_err();
    assert_eq!((error.kind(), error.loss()), (ErrorKind::Lost, Some(&LossReason::Taken)));
    assert!(!held.is_held());
}
