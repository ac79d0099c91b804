//! What the tests here have in common.

use std::future::Future;
use std::time::{Duration, Instant};

use lock_redis::{ClientOptions, Error, LeaseOptions, MutexGuard, RedisConfig, RedisLocks};
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::servers::resp::Value;
use lock_testkit::{Missing, REQUIRE_VARIABLE};

/// By when something that needs no waiting has happened even on a busy machine.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);
/// By when a deployment has failed over and works again, even on a busy machine.
pub(crate) const FAILOVER: Duration = Duration::from_secs(60);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What was started; `None`, loudly, where no `redis-server` is installed.
pub(crate) fn installed<T>(outcome: Result<T, Missing>) -> Option<T> {
    let missing = match outcome {
        Ok(started) => return Some(started),
        Err(missing) => missing,
    };
    let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
    assert!(!required && missing.to_string().contains("not installed"), "{missing}");
    eprintln!("SKIPPED: {missing}");
    None
}

pub(crate) async fn connect(url: &str) -> RedisLocks {
    RedisLocks::connect(url).await.unwrap()
}

/// A client whose leases last so long.
pub(crate) async fn with_ttl(url: &str, ttl: Duration) -> RedisLocks {
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::with_ttl(ttl);
    RedisLocks::connect_with(RedisConfig::new(url).with_client(options)).await.unwrap()
}

/// One command to this server, its words separated by blanks.
pub(crate) async fn say(server: &RedisServer, command: &str) -> Value {
    server.client().unwrap().command(&command.split(' ').collect::<Vec<_>>()).await.unwrap()
}

/// Is granted this lock within the time, whatever goes wrong meanwhile.
pub(crate) async fn obtain(locks: &RedisLocks, name: &str, within: Duration) -> MutexGuard {
    let mutex = locks.mutex(name.to_owned());
    let began = Instant::now();
    loop {
        match mutex.try_lock_for(within.saturating_sub(began.elapsed())).await {
            Ok(Some(held)) => return held,
            outcome => assert!(began.elapsed() < within, "{name}: no lock within {within:?}: {outcome:?}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
}

/// What the future gives, within the time.
pub(crate) async fn soon<T>(what: &str, within: Duration, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(within, future).await.unwrap_or_else(|_| panic!("{what}: not within {within:?}"))
}

/// Polls until there is something.
pub(crate) async fn eventually<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(ms(20)).await;
    }
}

/// The error and all its causes.
pub(crate) fn told(error: &Error) -> String {
    let mut text = format!("{error:?}: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
