//! Calls that are left on a runtime which nobody drives any more.

use std::time::Duration;

use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use tokio::runtime::Runtime;

use crate::support::{config, eventually, server};

const LONG: Duration = Duration::from_secs(300);

/// A client behind a link, with so many connections.
async fn behind(server: &MemcachedServer, connections: usize) -> (Proxy, MemcachedLocks) {
    let link = Proxy::to(server.address(), Protocol::Memcached).unwrap();
    let config = config(server).with_restart_policy(RestartPolicy::Off).with_longest_lease(LONG);
    let mut config = config.with_connections(connections);
    config.url = format!("memcached://{}", link.address());
    let locks = MemcachedLocks::connect_with(config).await.unwrap();
    (link, locks)
}

fn runtimes() -> (Runtime, Runtime) {
    let own = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    (own, tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap())
}

#[test]
fn a_call_that_is_dropped_or_left_where_nobody_drives_it_keeps_no_connection_from_the_others() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    for is_dropped in [true, false] {
        let (link, locks) = own.block_on(behind(&server, 1));
        let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, "ma lock:mutex:a "));
        let mutex = locks.mutex("a");
        let mut call = Box::pin(async move { mutex.try_lock().await });
        left.block_on(async {
            let asked = tokio::time::timeout(ms(100), &mut call).await;
            assert!(asked.is_err(), "{asked:?}");
        });
        let kept = left.block_on(async { if is_dropped { None } else { Some(call) } });
        own.block_on(async {
            lost.applied(Duration::from_secs(15)).await.unwrap();
            eventually("others are served", async || matches!(locks.mutex("b").try_lock().await, Ok(Some(_)))).await;
        });
        drop(kept);
    }
}

/// The waiter has offered itself, and is told nothing more.
#[test]
fn a_hand_over_that_is_left_where_nobody_drives_it_does_not_keep_the_waiter() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    let (link, locks) = own.block_on(behind(&server, 32));
    // The first one that meets the waiter in a pause, and not in a look, hands the lock over.
    for name in 0..100 {
        let mutex = locks.mutex(format!("{name}")).with_ttl(LONG);
        let held = left.block_on(mutex.lock()).unwrap();
        let waiting = own.spawn(async move { mutex.lock().await });
        own.block_on(eventually("it waits", async || format!("{:?}", locks.backend()).contains("Offer {")));
        let command = format!("ma lock:mutex:{name} ");
        let lost = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToServer).on_request(1, &command));
        if left.block_on(async { tokio::time::timeout(ms(200), held.release()).await }).is_ok() {
            drop(lost);
            drop(own.block_on(waiting).unwrap().unwrap());
            continue;
        }
        own.block_on(async {
            lost.applied(Duration::from_secs(15)).await.unwrap();
            lost.heal().unwrap();
            let granted = tokio::time::timeout(Duration::from_secs(30), waiting).await;
            drop(granted.expect("it is never told").unwrap().unwrap());
        });
        return;
    }
    panic!("no lock was handed over");
}
