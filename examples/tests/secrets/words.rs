//! An operator's words: an error says what happened, and each cause once.

use futures_util::future::join_all;
use lock_core::{ClientOptions, Error, ErrorKind, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::testing::{PROMPTLY, connected, eventually, installed};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_zk::{ZkConfig, ZkLocks};

use crate::hasty;
use crate::heap::{chain, says_nothing_twice};
use crate::zookeeper::impatient;

async fn connect(url: &str, options: ClientOptions) -> Result<Locks, Error> {
    if url.starts_with("zk") {
        let mut config = impatient(ZkConfig::new(url));
        config.client = options;
        return ZkLocks::connect_with(config).await.map(Into::into);
    }
    if url.starts_with("memcached") {
        let mut config = MemcachedConfig::new(url).with_restart_policy(RestartPolicy::Off);
        config.client = options;
        return MemcachedLocks::connect_with(config).await.map(Into::into);
    }
    let mut config = RedisConfig::new(url);
    config.client = options;
    RedisLocks::connect_with(config).await.map(Into::into)
}

/// The verdict of a server that is there, however slow it is.
async fn answered(url: &str) -> Result<Locks, Error> {
    connected(async || connect(url, ClientOptions::default()).await).await
}

/// Whether the chain has each of these words in it, whatever their case; nothing is in it twice. A machine that stands still
/// makes errors of its own.
fn tells(error: &Error, kind: ErrorKind, words: &[&str]) -> bool {
    let chain = chain(error);
    says_nothing_twice(&chain);
    let all = chain.join("; ").to_lowercase();
    let tells = error.kind() == kind && words.iter().all(|word| all.contains(word));
    if !tells {
        eprintln!("not {kind:?} with {words:?}: {chain:#?}");
    }
    tells
}

/// Tries until the error says that it is unavailable, in these words.
async fn try_tells(locks: &Locks, words: &[&str]) {
    eventually(&format!("an error with {words:?}"), PROMPTLY, async || {
        locks.mutex("told").try_lock().await.is_err_and(|error| tells(&error, ErrorKind::Unavailable, words))
    })
    .await;
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
    let told = table.map(async |(scheme, host, words)| {
        let url = format!("{scheme}://{host}/");
        eventually(&format!("an error with {words:?}"), PROMPTLY, async || {
            let error = connect(&url, hasty()).await.expect_err("nobody is there");
            tells(&error, ErrorKind::Unavailable, words)
        })
        .await;
    });
    join_all(told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_is_told_as_what_it_is() {
    let Some(server) = installed(RedisServer::start_with(&RedisOptions::new().with_user("worker", "word")).await)
    else {
        return;
    };
    let wrong = server.url().replace(":word@", ":another@");
    let error = answered(&wrong).await.expect_err("the password is wrong");
    assert!(tells(&error, ErrorKind::Denied, &["credentials were refused"]));
    let locks = answered(server.url()).await.expect("the password is right");
    let operator = server.client().expect("the server has a client");
    operator.command(&["CONFIG", "SET", "maxmemory", "1"]).await.expect("memory is limited");
    try_tells(&locks, &["out of memory"]).await;
    operator.command(&["CONFIG", "SET", "maxmemory", "0"]).await.expect("memory is not limited");
    operator.command(&["REPLICAOF", "127.0.0.1", "1"]).await.expect("it is a replica");
    try_tells(&locks, &["read-only"]).await;
}

/// Fills a server of 2 MB that evicts nothing with items as small as a lock's.
async fn fill(server: &MemcachedServer) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(server.address()).await.expect("it is there");
    let sets = (0..60_000).map(|i| format!("set f:{i:011} 0 0 19 noreply\r\n1000000000000000001\r\n"));
    stream.write_all(sets.collect::<String>().as_bytes()).await.expect("it reads");
    stream.write_all(b"mn\r\n").await.expect("it reads");
    let mut said = Vec::new();
    while !said.ends_with(b"MN\r\n") {
        assert!(stream.read_buf(&mut said).await.expect("it answers") > 0, "it closes the connection");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memcached_without_memory_is_told_as_what_it_is() {
    let Some(server) = installed(MemcachedServer::start_with(&MemcachedOptions::new().with_memory(2)).await) else {
        return;
    };
    let locks = answered(server.url()).await.expect("it is there");
    fill(&server).await;
    try_tells(&locks, &["out of memory"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_is_told_as_one_that_does_not_answer() {
    let Some(redis) = installed(RedisServer::start_own().await) else { return };
    let Some(memcached) = installed(MemcachedServer::start_own().await) else { return };
    let a = answered(redis.url()).await.expect("it is there");
    let b = answered(memcached.url()).await.expect("it is there");
    drop((redis, memcached));
    // What was under way may have been carried out; what comes later was not.
    tokio::join!(try_tells(&a, &["refuse"]), try_tells(&b, &["refuse"]));
}
