//! Servers and clients of these tests.

use std::cell::Cell;
use std::time::Duration;

use lock_core::{ClientOptions, LeaseOptions};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit::{ms, testing};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};

/// The lease of these tests, and the longest one.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A server of our own; `None`, loudly, where none is installed.
pub(crate) async fn server(options: MemcachedOptions) -> Option<MemcachedServer> {
    testing::installed(MemcachedServer::start_with(&options).await)
}

/// Leases of a second.
pub(crate) fn config(server: &MemcachedServer) -> MemcachedConfig {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(LEASE);
    MemcachedConfig::new(server.url()).with_client(client).with_longest_lease(LEASE)
}

pub(crate) async fn client(server: &MemcachedServer, policy: RestartPolicy) -> MemcachedLocks {
    MemcachedLocks::connect_with(config(server).with_restart_policy(policy)).await.unwrap()
}

/// A client behind a link.
pub(crate) async fn far(server: &MemcachedServer, policy: RestartPolicy) -> (Proxy, MemcachedLocks) {
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(server).with_restart_policy(policy);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    (link, locks)
}

/// The number of connections that the server has had, the one of this question included.
pub(crate) async fn connections(server: &MemcachedServer) -> u64 {
    server.client().stats("").await.unwrap()["total_connections"].parse().unwrap()
}

/// The number of connections to the server that have ended. This question's own has not.
async fn closed_connections(server: &MemcachedServer) -> u64 {
    let stats = server.client().stats("").await.unwrap();
    let number = |name: &str| stats[name].parse::<u64>().unwrap();
    number("total_connections") - number("curr_connections")
}

/// The number of connections that it has closed, once no connection is being opened: the server counts one in two steps, and seems to have closed it in between. The
/// second question of two finds that of the first one closed, and nothing else then. The number of questions comes along: each has a
/// connection, which is closed.
pub(crate) async fn settled_closed_connections(server: &MemcachedServer) -> (u64, u64) {
    let (closed, questions) = (Cell::new(0), Cell::new(0));
    let is_settled = async || {
        let first = closed_connections(server).await;
        closed.set(closed_connections(server).await);
        questions.set(questions.get() + 2);
        closed.get() == first + 1
    };
    eventually("only the question's own connection was closed", is_settled).await;
    (closed.get(), questions.get())
}

/// A client that quarantines, once the first quarantine is over.
pub(crate) async fn open(server: &MemcachedServer) -> MemcachedLocks {
    opened(config(server)).await
}

/// A client of this configuration, once the first quarantine is over.
pub(crate) async fn opened(config: MemcachedConfig) -> MemcachedLocks {
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    locks.mutex("first").try_lock_for(ms(30_000)).await.unwrap().unwrap().release().await.unwrap();
    locks
}

/// Asks until it is so, for as long as items and clocks of whole seconds may take.
#[track_caller]
pub(crate) fn eventually(what: &str, so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    testing::eventually(what, ms(15_000), so)
}

/// Lets time go by: as a stimulus, such as a hold or a pause of the server, and never to wait for an effect.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The second since 1970 at which the epoch's item ends. What is left of it tells clients the server's time.
pub(crate) async fn epoch_ends_at(server: &MemcachedServer) -> u64 {
    let left = server.client().command("mg lock:epoch t").await.unwrap();
    let left: u64 = left.strip_prefix("HD t").expect("there is an epoch").parse().unwrap();
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() + left
}

/// Has the epoch's item end then: later, and the server's time seems to be earlier.
pub(crate) async fn end_epoch_at(server: &MemcachedServer, second: u64) {
    assert_eq!(server.client().command(&format!("touch lock:epoch {second}")).await.unwrap(), "TOUCHED");
}
