//! Faults of processes, on real servers.

use lock_testkit::faults::Data;
use lock_testkit::testing::{PROMPTLY, eventually};
use lock_testkit_servers::faults::ProcessFault;
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};

use crate::store::{found, server_with};

async fn value(server: &RedisServer) -> Option<String> {
    // The server may have just been started.
    let client = server.client().unwrap();
    eventually("an answer", PROMPTLY, async || client.command(&["GET", "key"]).await.ok()).await.as_text()
}

#[tokio::test]
async fn a_frozen_server_stands_still_until_its_guard_is_dropped() {
    let Some(server) = server_with(&RedisOptions::new()).await else { return };
    let frozen = ProcessFault::Freeze.inject(&server).unwrap();
    assert!(!server.is_running() && frozen.proof().seen[0].contains("stands still"));
    drop(frozen);
    assert_eq!(value(&server).await, None);
}

#[tokio::test]
async fn a_killed_server_comes_back_with_what_it_kept_or_with_nothing() {
    let Some(server) = server_with(&RedisOptions::new().persistent()).await else { return };
    server.client().unwrap().command(&["SET", "key", "kept"]).await.unwrap();
    for (data, expected) in [(Data::Kept, Some("kept".to_owned())), (Data::Gone, None)] {
        let before = server.pid();
        let killed = ProcessFault::Kill { data }.inject(&server).unwrap();
        assert!(server.pid().is_none());
        killed.heal().unwrap();
        assert_ne!(server.pid(), before);
        assert_eq!(value(&server).await, expected);
    }
}

#[tokio::test]
async fn a_server_that_is_not_ours_is_left_alone() {
    let Some(server) = server_with(&RedisOptions::new()).await else { return };
    let theirs = RedisServer::existing(server.url());
    assert!(ProcessFault::Freeze.inject(&theirs).is_err() && server.is_running());
}

#[tokio::test]
async fn a_memcached_server_comes_back_with_nothing() {
    let Some(server) = found(MemcachedServer::start_own().await) else { return };
    let client = server.client();
    client.add("key", "value", 0).await.unwrap();
    let frozen = ProcessFault::Freeze.inject(&server).unwrap();
    assert!(!server.is_running() && frozen.proof().seen[0].contains("stands still"));
    frozen.heal().unwrap();
    assert_eq!(client.get("key").await.unwrap().as_deref(), Some(&b"value"[..]));
    ProcessFault::Kill { data: Data::Kept }.inject(&server).unwrap().heal().unwrap();
    server.until_ready().await.unwrap();
    assert_eq!(client.get("key").await.unwrap(), None);
}
