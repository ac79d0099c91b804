//! Helpers of the tests here.

use std::time::{Duration, Instant};

use lock_redis::{ClientOptions, Error, LeaseOptions, MutexGuard, RedisConfig, RedisLocks};
use lock_testkit::testing::connected;
pub(crate) use lock_testkit::testing::{PROMPTLY, about_time, eventually, installed, soon};
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::resp::Value;

/// The time by which a deployment has failed over and works again, even on a busy machine.
pub(crate) const FAILOVER: Duration = Duration::from_secs(60);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) async fn connect(url: &str) -> RedisLocks {
    configured(RedisConfig::new(url)).await.unwrap()
}

/// A client whose leases last so long.
pub(crate) async fn with_ttl(url: &str, ttl: Duration) -> RedisLocks {
    let mut options = ClientOptions::default();
    options.lease = LeaseOptions::new(ttl);
    configured(RedisConfig::new(url).with_client(options)).await.unwrap()
}

/// A client as configured, or why there is none.
pub(crate) async fn configured(config: RedisConfig) -> Result<RedisLocks, Error> {
    connected(async || RedisLocks::connect_with(config.clone()).await).await
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
