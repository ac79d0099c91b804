//! Clients of a test's servers, and waiting with a deadline.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use lock_testkit::Missing;
use lock_testkit::servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
use lock_zk::{Error, ErrorKind, LeaseOptions, ZkConfig, ZkLocks};

/// By when something that needs no waiting has happened even on a busy machine.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);
/// A session timeout that makes trouble show soon.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// What was started; `None`, loudly, where no ZooKeeper is installed.
pub(crate) fn there<T>(started: Result<T, Missing>) -> Option<T> {
    match started {
        Ok(server) => Some(server),
        Err(missing) => {
            let required = std::env::var(lock_testkit::REQUIRE_VARIABLE).is_ok_and(|value| value == "1");
            assert!(!required, "LOCK_TESTKIT_REQUIRE=1, but the server is missing: {missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// A server of a test's own.
pub(crate) async fn server() -> Option<ZooKeeperServer> {
    there(ZooKeeperServer::start_own().await)
}

/// A client whose session ends this long after it was heard last.
pub(crate) async fn client(url: &str, session: Duration) -> ZkLocks {
    let config = ZkConfig::new(url).with_session_timeout(session).with_tick_time(ms(200));
    ZkLocks::connect_with(config).await.unwrap()
}

/// A lease that is renewed often enough to notice what happens to it.
pub(crate) fn lease() -> LeaseOptions {
    LeaseOptions::with_ttl(ms(1500))
}

/// The nodes of a mutex, first in line first.
pub(crate) async fn nodes(truth: &ZooKeeperClient, name: &str) -> Vec<String> {
    let directory = format!("/lock/mutex/{name}");
    let mut names = truth.children(&directory).await.unwrap().unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names.into_iter().map(|name| format!("{directory}/{name}")).collect()
}

/// The session that has made a node.
pub(crate) async fn maker(truth: &ZooKeeperClient, path: &str) -> i64 {
    truth.exists(path).await.unwrap().unwrap().ephemeral_owner
}

/// Ends the session that has made this node. Its client takes it back at once, so a thief may have to try again.
pub(crate) async fn steal(server: &ZooKeeperServer, truth: &ZooKeeperClient, path: &str) {
    let session = maker(truth, path).await;
    eventually("the session is stolen", PROMPTLY, async || {
        let _ = server.expire(session).await;
        truth.exists(path).await.unwrap().is_none()
    })
    .await;
}

/// What the future gives; the test fails if it takes longer.
pub(crate) async fn soon<F: Future>(what: &str, within: Duration, future: F) -> F::Output {
    tokio::time::timeout(within, future).await.unwrap_or_else(|_| panic!("{what}: not within {within:?}"))
}

/// Asks until the answer is yes; the test fails if it takes longer.
pub(crate) async fn eventually(what: &str, within: Duration, mut ask: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !ask().await {
        assert!(began.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// The error of this kind.
pub(crate) fn fails<T: Debug>(outcome: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}
