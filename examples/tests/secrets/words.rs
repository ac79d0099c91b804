//! An operator's words: an error says what happened, and each cause once.

use std::time::Duration;

use lock_core::{ErrorKind, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartGuard};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::servers::memcached::MemcachedServer;
use lock_testkit::servers::redis::{RedisOptions, RedisServer};
use lock_testkit::testing::installed;
use lock_zk::{ZkConfig, ZkLocks};

use crate::hasty;
use crate::heap::{chain, says_nothing_twice};

async fn connect(url: &str) -> Result<Locks, lock_core::Error> {
    if url.starts_with("zk") {
        let mut config = ZkConfig::new(url);
        config.client = hasty();
        return ZkLocks::connect_with(config).await.map(Into::into);
    }
    if url.starts_with("memcached") {
        let mut config = MemcachedConfig::new(url).with_restart_guard(RestartGuard::Off);
        config.client = hasty();
        return MemcachedLocks::connect_with(config).await.map(Into::into);
    }
    let mut config = RedisConfig::new(url);
    config.client = hasty();
    RedisLocks::connect_with(config).await.map(Into::into)
}

/// The chain has each of these words in it, whatever their case, and nothing twice.
fn tells(error: &lock_core::Error, kind: ErrorKind, words: &[&str]) {
    let chain = chain(error);
    says_nothing_twice(&chain);
    let all = chain.join("; ").to_lowercase();
    assert!(error.kind() == kind && words.iter().all(|word| all.contains(word)), "{kind:?} and {words:?}: {chain:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_connect_is_told_why() {
    // A listener that takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = format!("127.0.0.1:{}", silent.local_addr().expect("it is bound").port());
    let (unknown, refused) = ("no-such-host.invalid", "127.0.0.1:1");
    let table: [(&str, &str, &[&str]); 9] = [
        ("redis", unknown, &["resolved", unknown]),
        ("redis", refused, &["refused", refused]),
        ("redis", &silent, &["in time", &silent]),
        ("memcached", unknown, &["resolved", unknown]),
        ("memcached", refused, &["refuse", refused]),
        ("memcached", &silent, &["answer", &silent]),
        ("zk", unknown, &["resolved", unknown]),
        ("zk", refused, &["refused", refused]),
        ("zk", &silent, &["opened no session", &silent]),
    ];
    for (scheme, host, words) in table {
        let error = connect(&format!("{scheme}://{host}/")).await.expect_err("nobody is there");
        tells(&error, ErrorKind::Unavailable, words);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_is_told_as_what_it_is() {
    let Some(server) = installed(RedisServer::start_with(&RedisOptions::new().with_user("worker", "word")).await)
    else {
        return;
    };
    let wrong = server.url().replace(":word@", ":another@");
    let error = connect(&wrong).await.expect_err("the password is wrong");
    tells(&error, ErrorKind::Denied, &["credentials were refused"]);
    let locks = connect(server.url()).await.expect("the password is right");
    let operator = server.client().expect("the server has a client");
    let try_lock = async || locks.mutex("told").try_lock().await.map(drop).expect_err("it is refused");
    operator.command(&["CONFIG", "SET", "maxmemory", "1"]).await.expect("memory is limited");
    tells(&try_lock().await, ErrorKind::Unavailable, &["out of memory"]);
    operator.command(&["CONFIG", "SET", "maxmemory", "0"]).await.expect("memory is not limited");
    operator.command(&["REPLICAOF", "127.0.0.1", "1"]).await.expect("it is a replica");
    tells(&try_lock().await, ErrorKind::Unavailable, &["read-only"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_is_told_as_one_that_does_not_answer() {
    let Some(redis) = installed(RedisServer::start_own().await) else { return };
    let Some(memcached) = installed(MemcachedServer::start_own().await) else { return };
    let (a, b) =
        (connect(redis.url()).await.expect("it is there"), connect(memcached.url()).await.expect("it is there"));
    drop((redis, memcached));
    for locks in [a, b] {
        // What was under way may have been carried out; what comes later was not.
        let stopped = lock_testkit::testing::eventually("it is noticed", Duration::from_secs(10), async || {
            let error = locks.mutex("told").try_lock().await.err()?;
            says_nothing_twice(&chain(&error));
            (error.kind() == ErrorKind::Unavailable).then_some(error)
        });
        tells(&stopped.await, ErrorKind::Unavailable, &["refuse"]);
    }
}
