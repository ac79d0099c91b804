//! Requests of many tasks at the same time: they go over one connection, and none waits for another's reply.

use std::time::Duration;

use futures_util::future::join_all;
use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::proxy::{Protocol, Proxy};
use lock_testkit_servers::memcached::MemcachedOptions;

use crate::support::{config, eventually, server};

/// Tasks, many more than a client has connections, and than go out in one write.
const MANY: u64 = 2_000;

const LONG: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_waits_for_the_reply_to_another() {
    let Some(server) = server(MemcachedOptions::new()).await else { return };
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let mut config = config(&server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LONG);
    config.url = format!("memcached://{}", link.address());
    config.client.op_timeout = Duration::from_secs(20);
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    let lock = async |number: u64, locks: MemcachedLocks| locks.mutex(format!("{number}")).with_ttl(LONG).lock().await;
    let before = link.requests();
    server.stop().unwrap();
    let held: Vec<_> = (0..MANY).map(|number| tokio::spawn(lock(number, locks.clone()))).collect();
    let sent = async || link.requests() - before >= MANY;
    eventually("every request is on its way although none is answered", sent).await;
    assert!(link.open_connections() <= 32, "{} connections", link.open_connections());
    server.cont().unwrap();
    for held in join_all(held).await {
        held.unwrap().unwrap().release().await.unwrap();
    }
}

/// On each of two runtimes, two requests at once; then nobody drives those runtimes any more.
#[test]
fn a_runtime_that_stands_still_keeps_nobody_else_from_a_connection() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second, third) = (runtime(), runtime(), runtime());
    let Some(server) = first.block_on(server(MemcachedOptions::new())) else { return };
    let config = config(&server).with_restart_policy(RestartPolicy::Off).with_connections(2);
    let locks = first.block_on(MemcachedLocks::connect_with(config)).unwrap();
    let two_at_once = async |names: [&'static str; 2]| {
        let (one, other) = (locks.mutex(names[0]), locks.mutex(names[1]));
        let (one, other) = tokio::join!(one.lock(), other.lock());
        one.unwrap().release().await.unwrap();
        other.unwrap().release().await.unwrap();
    };
    first.block_on(two_at_once(["a", "b"]));
    second.block_on(two_at_once(["c", "d"]));
    third.block_on(two_at_once(["e", "f"]));
}
