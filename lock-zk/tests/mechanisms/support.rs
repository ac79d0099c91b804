//! Clients of a test's servers, and waiting with a deadline.

use std::fmt::Debug;
use std::time::Duration;

use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit::testing;
pub(crate) use lock_testkit::testing::{PROMPTLY, eventually, installed as there, soon};
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperServer};
use lock_zk::{Error, ErrorKind, LeaseOptions, ZkConfig, ZkLocks};

/// A session timeout that makes faults show soon.
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

/// The leader and its followers, once each has said what it is: one that is late to answer counts as having no part.
pub(crate) async fn parts(ensemble: &ZooKeeperEnsemble) -> (&ZooKeeperServer, [&ZooKeeperServer; 2]) {
    eventually("every server says its part", PROMPTLY, async || {
        let leader = ensemble.leader().await.ok()?;
        Some((leader, <[_; 2]>::try_from(ensemble.followers().await).ok()?))
    })
    .await
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
    // Boxed: the layout of what is around it would be too deep for the compiler.
    Box::pin(testing::connected(async || crate::connect(config.clone()).await)).await.unwrap()
}

/// A lease that is renewed often enough to notice what happens to it.
pub(crate) fn lease() -> LeaseOptions {
    LeaseOptions::new(ms(1500))
}

/// One that notices it as soon, and does not end meanwhile on a machine that stands still.
pub(crate) fn watched() -> LeaseOptions {
    LeaseOptions::new(ms(10_000)).with_renew_every(ms(300))
}

/// The nodes of a mutex, first in the queue first.
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
