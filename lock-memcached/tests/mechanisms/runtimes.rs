//! Calls that are left on a runtime which nobody drives any more.

use std::pin::Pin;
use std::time::Duration;

use lock_core::{Error, MutexGuard};
use lock_memcached::{MemcachedLocks, RestartPolicy};
use lock_testkit::ms;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit_servers::memcached::{MemcachedOptions, MemcachedServer};
use tokio::runtime::Runtime;

use crate::support::{config, eventually, far, pass, server};

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
            tokio::select! {
                lost = lost.applied(Duration::from_secs(15)) => drop(lost.unwrap()),
                asked = &mut call => panic!("{asked:?}"),
            }
        });
        let kept = left.block_on(async { if is_dropped { None } else { Some(call) } });
        own.block_on(eventually("others are served", async || {
            matches!(locks.mutex("b").try_lock().await, Ok(Some(_)))
        }));
        drop(kept);
    }
}

#[test]
fn a_call_that_is_left_while_it_waits_for_a_connection_keeps_none_from_the_others() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    let (link, locks) = own.block_on(behind(&server, 1));
    let slow = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, "ma lock:mutex:a "));
    let [first, waits] = ["a", "b"].map(|name| {
        let mutex = locks.mutex(name);
        async move { mutex.try_lock().await }
    });
    let first = own.spawn(first);
    own.block_on(slow.applied(Duration::from_secs(15))).unwrap();
    let mut waits = Box::pin(waits);
    left.block_on(async {
        let asked = tokio::time::timeout(ms(10), &mut waits).await;
        assert!(asked.is_err(), "{asked:?}");
    });
    own.block_on(async {
        assert!(first.await.unwrap().is_err(), "it was answered");
        eventually("others are served", async || matches!(locks.mutex("c").try_lock().await, Ok(Some(_)))).await;
    });
    drop(waits);
}

#[test]
fn a_call_that_is_left_while_it_opens_the_epoch_does_not_keep_the_others_from_it() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    // It makes the epoch, which is closed for as long as a lease may last.
    let (link, locks) = own.block_on(far(&server, RestartPolicy::Quarantine));
    let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToServer).on_request(1, "ma lock:epoch "));
    let mutex = locks.mutex("a");
    let mut opens = Box::pin(async move { mutex.lock().await });
    left.block_on(async {
        tokio::select! {
            lost = lost.applied(Duration::from_secs(30)) => lost.unwrap(),
            granted = &mut opens => panic!("{granted:?}"),
        }
    });
    let granted = own.block_on(locks.mutex("b").try_lock_for(Duration::from_secs(30)));
    drop(granted.unwrap().expect("nobody opens it"));
    drop(opens);
}

#[test]
fn a_hand_over_that_is_dropped_where_nobody_drives_it_does_not_keep_the_waiter() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    let (_link, waiting, release) = handed_over(&own, &left, &server, LONG);
    left.block_on(async { drop(release) });
    let granted = own.block_on(async { tokio::time::timeout(Duration::from_secs(30), waiting).await });
    drop(granted.expect("it is never told").unwrap().unwrap());
}

/// The task that describes grants began on a runtime that nobody drives any more.
#[test]
fn grants_are_described_although_the_first_one_was_left_where_nobody_drives_it() {
    let (own, left) = runtimes();
    let Some(server) = own.block_on(server(MemcachedOptions::new())) else { return };
    let (_link, locks) = own.block_on(behind(&server, 32));
    let first = left.block_on(locks.mutex("first").lock()).unwrap();
    own.block_on(eventually("a grant is described", async || {
        let held = locks.mutex("later").with_ttl(LONG).lock().await.unwrap();
        // What is held for no time is not described.
        pass(ms(50)).await;
        // On a machine that stands still no look is answered in time: it is made again.
        let shown = locks.mutex("later").inspect().await.ok().map(|found| found.holders[0].grant);
        let is_shown = shown == Some(Some(held.grant_id()));
        held.release().await.unwrap();
        is_shown
    }));
    drop(first);
}

type Waiting = tokio::task::JoinHandle<Result<MutexGuard, Error>>;
type Release = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// A waiter that has offered itself, and the release that hands it the lock and is not driven any more.
fn handed_over(own: &Runtime, left: &Runtime, server: &MemcachedServer, ttl: Duration) -> (Proxy, Waiting, Release) {
    let (link, locks) = own.block_on(behind(server, 32));
    // The first one that meets the waiter in a pause, and not in a look, hands the lock over.
    for name in 0..100 {
        let mutex = locks.mutex(format!("{name}")).with_ttl(ttl);
        let held = left.block_on(mutex.lock()).unwrap();
        let waiting = own.spawn(async move { mutex.lock().await });
        own.block_on(eventually("it waits", async || format!("{:?}", locks.backend()).contains("Offer {")));
        let command = format!("ma lock:mutex:{name} ");
        let lost = link.inject(LinkFault::new(Toxic::Blackhole, Direction::ToServer).on_request(1, &command));
        let mut release: Release = Box::pin(held.release());
        if left.block_on(async { tokio::time::timeout(ms(200), &mut release).await }).is_err() {
            own.block_on(lost.applied(Duration::from_secs(15))).unwrap();
            lost.heal().unwrap();
            return (link, waiting, release);
        }
        drop(lost);
        drop(own.block_on(waiting).unwrap().unwrap());
    }
    panic!("no lock was handed over");
}
