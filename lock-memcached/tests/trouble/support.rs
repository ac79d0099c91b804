//! Servers and clients of these tests.

use std::time::{Duration, Instant};

use lock_core::{ClientOptions, LeaseOptions};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartGuard};
use lock_testkit::servers::memcached::{MemcachedOptions, MemcachedServer};
use lock_testkit::{Missing, REQUIRE_VARIABLE, ms};

/// The lease of these tests, and the longest one.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A server of our own; `None`, loudly, where none is installed.
pub(crate) async fn server(options: MemcachedOptions) -> Option<MemcachedServer> {
    installed(MemcachedServer::start_with(&options).await)
}

fn installed<T>(outcome: Result<T, Missing>) -> Option<T> {
    match outcome {
        Ok(started) => Some(started),
        Err(missing) => {
            let required = std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
            assert!(missing.to_string().contains("not installed") && !required, "{missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// Leases of a second.
pub(crate) fn config(server: &MemcachedServer) -> MemcachedConfig {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::with_ttl(LEASE);
    client.op_timeout = ms(1000);
    MemcachedConfig::new(server.url()).with_client(client).with_longest_lease(LEASE)
}

pub(crate) async fn client(server: &MemcachedServer, guard: RestartGuard) -> MemcachedLocks {
    MemcachedLocks::connect_with(config(server).with_restart_guard(guard)).await.unwrap()
}

/// A client with the guard on, once the first quarantine is over.
pub(crate) async fn open(server: &MemcachedServer) -> MemcachedLocks {
    let locks = client(server, RestartGuard::Quarantine).await;
    locks.mutex("first").try_lock_for(ms(30_000)).await.unwrap().unwrap().release().await.unwrap();
    locks
}

/// Asks until it is so.
pub(crate) async fn eventually(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let (began, within) = (Instant::now(), ms(15_000));
    while !so().await {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        pass(ms(5)).await;
    }
}

/// Lets time go by: as a stimulus, such as a hold or a pause of the server, and never to wait for an effect.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
