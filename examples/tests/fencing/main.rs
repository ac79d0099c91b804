//! Fencing at real resources: a row in PostgreSQL, a hash in Redis, and an object behind `If-Match`. Each refuses the late writer, who
//! was paused past the end of his lease.
//!
//! `docs/fencing.md` shows the parts of this that are to be copied.

#![cfg(test)]

mod object_store;
mod postgres;
mod redis;

use std::time::Duration;

use lock_core::multi::Lockable;
use lock_core::{FencedMutex, FencingToken, LeaseOptions, Locks};
use lock_redis::RedisLocks;
use lock_testkit::testing::{PROMPTLY, eventually, installed};
use lock_testkit_servers::redis::RedisServer;

/// A resource that takes a token with every access.
trait Resource {
    /// The state; `None` if the token is too old.
    async fn read(&mut self, token: FencingToken) -> Option<String>;
    /// Whether it was written; no if the token is too old.
    async fn write(&mut self, token: FencingToken, state: &str) -> bool;
}

/// A resource behind a read-write lock.
trait SharedResource {
    /// The state, for a reader; `None` if the token is too old.
    async fn read(&mut self, token: FencingToken) -> Option<String>;
    /// Whether a writer has written it; no if the token is too old.
    async fn write(&mut self, token: FencingToken, state: &str) -> bool;
}

/// The mutex of these tests, on a Redis server of its own.
async fn mutex(server: &RedisServer) -> FencedMutex {
    let locks: Locks = RedisLocks::connect(server.url()).await.unwrap().into();
    locks
        .mutex("orders/42")
        .with_lease(LeaseOptions::new(Duration::from_secs(1)).with_auto_renew(false))
        .fenced()
        .unwrap()
}

/// Two holders, one after the other, of whom the first one is late. `resource` makes a client of the resource for each.
async fn refuses_the_late_writer<R: Resource>(resource: impl AsyncFn() -> R) {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let (mutex, mut mine, mut theirs) = (mutex(&server).await, resource().await, resource().await);
    let late = mutex.lock().await.unwrap();
    assert_eq!(mine.read(late.fencing_token()).await.as_deref(), Some("new"));
    // Its process stands still for longer than its lease.
    eventually("the lease ends", PROMPTLY, async || !late.is_held()).await;
    let next = mutex.lock().await.unwrap();
    assert!(next.fencing_token() > late.fencing_token());
    // The next holder has only read by now, and goes by what it has read.
    assert_eq!(theirs.read(next.fencing_token()).await.as_deref(), Some("new"));
    assert!(!mine.write(late.fencing_token(), "cancelled").await, "the late writer was let in behind a reader");
    assert!(theirs.write(next.fencing_token(), "paid").await);
    assert!(!mine.write(late.fencing_token(), "cancelled").await, "the late writer was let in behind a writer");
    assert_eq!(mine.read(late.fencing_token()).await, None, "the late reader was let in");
    assert_eq!(theirs.read(next.fencing_token()).await.as_deref(), Some("paid"));
}

/// Two readers between two writers, of whom the first one is late, and then the readers.
async fn serves_readers_together_and_refuses_who_is_late<R: SharedResource>(mut resource: R) {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let locks: Locks = RedisLocks::connect(server.url()).await.unwrap().into();
    let short = LeaseOptions::new(Duration::from_secs(1)).with_auto_renew(false);
    let config = locks.rwlock("config").unwrap().with_lease(short).fenced().unwrap();
    let late = config.write().await.unwrap();
    eventually("the lease ends", PROMPTLY, async || !late.is_held()).await;
    let [first, second] = [config.read().await.unwrap(), config.read().await.unwrap()].map(|held| held.fencing_token());
    assert!(late.fencing_token() < first && first < second);
    for reader in [second, first, second] {
        assert_eq!(resource.read(reader).await.as_deref(), Some("new"));
    }
    assert!(!resource.write(late.fencing_token(), "late").await, "the late writer was let in behind readers");
    let next = config.write().await.unwrap();
    assert!(resource.write(next.fencing_token(), "newer").await);
    assert_eq!(resource.read(second).await, None, "the late reader was let in");
    assert!(!resource.write(late.fencing_token(), "late").await, "the late writer was let in behind a writer");
}

#[tokio::test]
async fn several_locks_in_any_mix_have_a_token_each() {
    let Some(server) = installed(RedisServer::start_own().await) else { return };
    let locks: Locks = RedisLocks::connect(server.url()).await.unwrap().into();
    let config = locks.rwlock("config").unwrap();
    let mix = || {
        [
            Lockable::from(locks.mutex("orders/42").fenced().unwrap()),
            Lockable::write(&config),
            locks.mutex("config").into(),
        ]
    };
    let all = lock_core::multi::lock_all(mix()).await.unwrap();
    assert_eq!(
        all.guards().iter().map(|guard| guard.name().as_str()).collect::<Vec<_>>(),
        ["config", "config", "orders/42"]
    );
    assert!(all.fencing_tokens().all(|(_, token)| token.is_some()));
    assert!(config.try_read().await.unwrap().is_none());
    assert!(lock_core::multi::try_lock_all(mix()).await.unwrap().is_none());
    all.release().await.unwrap();
    assert!(config.try_read().await.unwrap().is_some());
}
