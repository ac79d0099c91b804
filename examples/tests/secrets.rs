//! No user, no password, and no URL with either, in any `Debug`, error, log or metric of any backend.
//!
//! Everything that is told goes into one heap: events and spans of every crate of the process at every level, the names and
//! labels of every metric, every error with its causes as text and as `Debug`, and the `Debug` of configurations, clients,
//! handles and guards.

#![cfg(test)]

use std::error::Error as _;
use std::fmt::{self, Debug, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{ClientOptions, Error, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::quorum::{QuorumConfig, QuorumLocks};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::servers::redis::{RedisOptions, RedisServer};
use lock_testkit::servers::zookeeper::ZooKeeperServer;
use lock_testkit::testing::installed;
use lock_zk::{ZkConfig, ZkLocks};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

const USER: &str = "quaestor";
const PASSWORD: &str = "xyzzy-plugh";
/// A user without any right, whom the server may name when it refuses a command.
const POOR: &str = "pauper";

static HEAP: Mutex<String> = Mutex::new(String::new());

fn told(what: &str) {
    let mut heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    heap.push_str(what);
    heap.push('\n');
}

/// Its `Debug`.
fn shown(what: &dyn Debug) {
    told(&format!("{what:?} {what:#?}"));
}

/// An error, if it is one, with its causes. What succeeds is left alone.
fn failed<T>(outcome: Result<T, Error>) -> Option<T> {
    let error = match outcome {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    told(&format!("{error}"));
    shown(&error);
    let mut cause = error.source();
    while let Some(error) = cause {
        told(&format!("{error}"));
        shown(&error);
        cause = error.source();
    }
    None
}

struct Listener;

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(format!("{} ", event.metadata().target()));
        event.record(&mut fields);
        told(&fields.0);
    }

    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut fields = Fields(format!("{} ", span.metadata().name()));
        span.record(&mut fields);
        told(&fields.0);
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        told(&fields.0);
    }
}

impl Recorder for Listener {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        told(&key.to_string());
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        told(&key.to_string());
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        told(&key.to_string());
        Histogram::noop()
    }
}

/// Short, so that what fails does so soon.
fn hasty() -> ClientOptions {
    let mut options = ClientOptions::default();
    (options.op_timeout, options.patience) = (Duration::from_millis(500), Duration::from_secs(1));
    options
}

fn redis(url: &str) -> RedisConfig {
    let mut config = RedisConfig::new(url);
    config.client = hasty();
    shown(&config);
    config
}

fn zookeeper(url: &str) -> ZkConfig {
    let mut config = ZkConfig::new(url);
    config.client = hasty();
    config
}

/// Uses every kind, as an application and as an operator; what comes back is told, whatever it is.
async fn use_all(locks: &Locks) {
    shown(locks);
    let mutex = locks.mutex("secrets");
    shown(&mutex);
    let guard = failed(mutex.try_lock_for(Duration::from_millis(200)).await).flatten();
    shown(&guard);
    shown(&failed(mutex.inspect().await));
    failed(mutex.try_lock().await.map(drop));
    if let Some(guard) = guard {
        failed(guard.extend(Duration::from_secs(3)).await);
        failed(guard.release().await);
    }
    if let Some(rwlock) = locks.rwlock("secrets") {
        shown(&rwlock);
        shown(&failed(rwlock.try_read().await));
    }
    if let Some(semaphore) = locks.semaphore("secrets", 2) {
        shown(&semaphore);
        shown(&failed(semaphore.try_acquire_many_for(1, Duration::from_millis(100)).await));
    }
}

async fn on_redis() {
    let options = RedisOptions::new().with_user(USER, PASSWORD);
    let Some(server) = installed(RedisServer::start_with(&options).await) else { return };
    let at = |user: &str, password: &str| {
        let hosts = server.url().rsplit_once('@').map_or(server.url(), |(_, hosts)| hosts);
        format!("redis://{user}:{password}@{hosts}")
    };
    let operator = server.client().expect("the server has a client");
    let known = format!(">{PASSWORD}");
    operator.command(&["ACL", "SETUSER", POOR, "on", &known, "+client"]).await.expect("a user is made");

    let good = redis(&at(USER, PASSWORD));
    let locks = failed(RedisLocks::connect_with(good.clone()).await).expect("the credentials are right");
    shown(&locks);
    let erased: Locks = locks.into();
    use_all(&erased).await;
    // Who may do nothing, and whose password is wrong, and what is no URL.
    if let Some(poor) = failed(RedisLocks::connect_with(redis(&at(POOR, PASSWORD))).await) {
        use_all(&poor.into()).await;
    }
    failed(RedisLocks::connect_with(redis(&at(USER, &format!("{PASSWORD}-wrong")))).await);
    for url in ["rediss", "http", "redis-sentinel", "redis-cluster", "unix"] {
        let url = format!("{url}://{USER}:{PASSWORD}@127.0.0.1:1/x y/%zz?{PASSWORD}");
        failed(RedisLocks::connect_with(redis(&url)).await);
    }
    let quorum =
        QuorumConfig::new([at(USER, PASSWORD), at(POOR, PASSWORD), format!("redis://{USER}:{PASSWORD}@127.0.0.1:1/")]);
    shown(&quorum);
    if let Some(locks) = failed(QuorumLocks::connect_with(quorum).await) {
        shown(&locks);
        use_all(&locks.into()).await;
    }
    // The credentials are not right any more when the client connects again; then nobody is there.
    operator.command(&["ACL", "SETUSER", USER, "resetpass", ">another"]).await.expect("the password is changed");
    operator.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.expect("connections are ended");
    use_all(&erased).await;
    drop(server);
    use_all(&erased).await;
    failed(RedisLocks::connect_with(good).await);
    failed(erased.close().await);
}

async fn on_zookeeper() {
    let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
    let config = zookeeper(server.url()).with_digest(USER, PASSWORD);
    shown(&config);
    let locks = failed(ZkLocks::connect_with(config.clone()).await).expect("the server is there");
    shown(&locks);
    let erased: Locks = locks.into();
    use_all(&erased).await;
    let stranger = zookeeper(server.url()).with_digest(USER, format!("{PASSWORD}-wrong"));
    if let Some(stranger) = failed(ZkLocks::connect_with(stranger).await) {
        use_all(&stranger.into()).await;
    }
    for url in [format!("zk://{USER}:{PASSWORD}@127.0.0.1:1/"), format!("http://{USER}:{PASSWORD}@a/%zz")] {
        failed(ZkLocks::connect_with(zookeeper(&url)).await);
    }
    drop(server);
    use_all(&erased).await;
    failed(ZkLocks::connect_with(config).await);
}

async fn on_memcached() {
    for url in [format!("memcached://{USER}:{PASSWORD}@127.0.0.1:1/"), format!("http://{USER}:{PASSWORD}@a/%zz")] {
        let mut config = MemcachedConfig::new(url);
        config.client = hasty();
        shown(&config);
        failed(MemcachedLocks::connect_with(config).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_told_anywhere() {
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Listener)).expect("it is the only one");
    metrics::set_global_recorder(Listener).map_err(|error| error.to_string()).expect("it is the only one");
    on_redis().await;
    on_zookeeper().await;
    on_memcached().await;
    let heap = HEAP.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(heap.len() > 10_000 && heap.contains("lock.acquire"), "nothing was told: {} bytes", heap.len());
    let leaks: Vec<_> =
        heap.lines().filter(|line| [USER, PASSWORD, POOR].iter().any(|secret| line.contains(secret))).collect();
    assert!(leaks.is_empty(), "{} leaks, such as {:#?}", leaks.len(), &leaks[..leaks.len().min(10)]);
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
