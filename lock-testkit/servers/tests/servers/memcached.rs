//! One memcached server.

use std::time::Duration;

use lock_testkit::testing::eventually;
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

use crate::support::{Traces, installed};

#[tokio::test]
async fn a_memcached_server_is_gone_with_its_handle_and_forgets_at_a_restart() {
    let Some(server) = installed(MemcachedServer::start_own().await) else { return };
    let first = Traces::of_memcached(&server);
    let (client, url) = (server.client(), server.url().to_owned());
    assert!(client.add("a", "1", 0).await.unwrap());
    assert!(!client.add("a", "2", 0).await.unwrap(), "a key that is taken was taken again");
    server.restart().await.unwrap();
    assert!(!first.process());
    assert_eq!((client.get("a").await.unwrap(), server.url()), (None, &*url));
    let traces = Traces::of_memcached(&server);
    server.stop().unwrap();
    assert!(!server.is_running());
    server.cont().unwrap();
    assert!(client.command("version").await.unwrap().starts_with("VERSION "));
    server.kill().unwrap();
    assert!(server.cont().is_err() && server.pid().is_none());
    drop(server);
    assert!(traces.are_gone());
}

#[tokio::test]
async fn a_flush_empties_a_memcached_server() {
    let Some(server) = installed(MemcachedServer::start_own().await) else { return };
    let client = server.client();
    for key in ["a", "b:c"] {
        assert!(client.add(key, "1", 100).await.unwrap());
    }
    let mut keys: Vec<_> = client.items().await.unwrap().into_iter().map(|item| item.key).collect();
    keys.sort();
    assert_eq!(keys, ["a", "b:c"]);
    client.flush_all().await.unwrap();
    assert_eq!(client.get("a").await.unwrap(), None);
    assert_eq!(client.stats("").await.unwrap()["cmd_flush"], "1");
    assert_eq!(client.items().await.unwrap(), []);
}

#[tokio::test]
async fn a_server_that_lists_no_items_says_so() {
    let options = MemcachedOptions::new().with_flag("-X");
    let Some(server) = installed(MemcachedServer::start_with(&options).await) else { return };
    let client = server.client();
    // Without items there is one question, with some of them two.
    for _ in 0..2 {
        let error = client.items().await.unwrap_err().to_string();
        assert!(error.contains("not allowed"), "{error}");
        client.add("a", "1", 100).await.unwrap();
    }
}

/// What is cold and was read twice is in use, until the server has moved it.
#[tokio::test]
async fn an_item_that_was_just_read_is_listed() {
    let Some(server) = installed(MemcachedServer::start_own().await) else { return };
    let client = server.client();
    for key in ["a", "b%2Fc", "d", "e", "f"] {
        assert!(client.add(key, "1", 100).await.unwrap());
        let is_cold = async || client.stats("items").await.unwrap()["items:1:number_cold"] == "1";
        eventually("the item is cold", Duration::from_secs(10), is_cold).await;
        for _ in 0..2 {
            assert_eq!(client.get(key).await.unwrap(), Some(b"1".to_vec()));
        }
        let keys: Vec<_> = client.items().await.unwrap().into_iter().map(|item| item.key).collect();
        assert_eq!(keys, [key]);
        assert!(client.delete(key).await.unwrap());
    }
}

#[tokio::test]
async fn a_key_is_replaced_and_ended_only_by_who_saw_its_last_value() {
    let Some(server) = installed(MemcachedServer::start_own().await) else { return };
    let client = server.client();
    assert!(client.add("a", "one", 100).await.unwrap());
    let (value, unique) = client.gets("a").await.unwrap().unwrap();
    assert_eq!(value, b"one");
    assert!(client.cas("a", "two", 100, unique).await.unwrap());
    assert!(!client.cas("a", "three", -1, unique).await.unwrap(), "the value had changed");
    let (value, unique) = client.gets("a").await.unwrap().unwrap();
    assert_eq!(value, b"two");
    assert!(client.cas("a", "", -1, unique).await.unwrap());
    assert_eq!(client.get("a").await.unwrap(), None);
    assert!(!client.delete("a").await.unwrap());
}

#[tokio::test]
async fn a_full_memcached_server_refuses_new_items_or_evicts_old_ones() {
    let small = MemcachedOptions::new().with_memory(2);
    for (options, refuses) in [(small.clone(), true), (small.evicting(), false)] {
        let Some(server) = installed(MemcachedServer::start_with(&options).await) else { return };
        let (client, big) = (server.client(), "x".repeat(500_000));
        let mut refused = None;
        for i in 0..10 {
            refused = refused.or(client.add(&format!("big/{i}"), &big, 0).await.err());
        }
        assert_eq!(refused.is_some(), refuses, "{refused:?}");
        let evicts = client.stats("settings").await.unwrap()["evictions"] == "on";
        assert_eq!(evicts, !refuses);
    }
}

#[tokio::test]
async fn a_flag_that_memcached_does_not_know_is_an_error() {
    if installed(MemcachedServer::start_own().await).is_some() {
        let options = MemcachedOptions::new().with_flag("--make-coffee");
        let missing = MemcachedServer::start_with(&options).await.unwrap_err().to_string();
        assert!(missing.contains("make-coffee"), "{missing}");
    }
}
