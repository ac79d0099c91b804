//! Clients of a test's servers, and waiting with a deadline.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit::servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
pub(crate) use lock_testkit::testing::{PROMPTLY, eventually, installed as there, soon};
use lock_zk::{Error, ErrorKind, LeaseOptions, ZkConfig, ZkLocks};

/// A session timeout that makes trouble show soon.
pub(crate) const SESSION: Duration = Duration::from_secs(2);

/// One that outlives the seconds for which a busy machine stands still.
pub(crate) const LASTING: Duration = Duration::from_secs(20);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A server of a test's own.
pub(crate) async fn server() -> Option<ZooKeeperServer> {
    there(ZooKeeperServer::start_own().await)
}

/// A client whose session ends this long after it was heard last.
pub(crate) async fn client(url: &str, session: Duration) -> ZkLocks {
    connected(ZkConfig::new(url).with_session_timeout(session).with_tick_time(ms(200))).await
}

/// A link to a server, of a test's own.
pub(crate) fn link(server: &ZooKeeperServer) -> Proxy {
    Proxy::to(server.address(), Protocol::ZooKeeper).unwrap()
}

/// The URL of what is behind these links.
pub(crate) fn over<'a>(links: impl IntoIterator<Item = &'a Proxy>) -> String {
    let addresses: Vec<_> = links.into_iter().map(Proxy::address).collect();
    format!("zk://{}", addresses.join(","))
}

/// A client as configured.
pub(crate) async fn connected(config: ZkConfig) -> ZkLocks {
    let began = Instant::now();
    loop {
        match crate::connect(config.clone()).await {
            // A machine without time for a server lets a short session's time pass.
            Err(error) if error.kind() == ErrorKind::Unavailable && began.elapsed() < PROMPTLY => {}
            connected => return connected.unwrap(),
        }
    }
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

/// The error of this kind.
pub(crate) fn fails<T: Debug>(outcome: Result<T, Error>, kind: ErrorKind) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error
}
