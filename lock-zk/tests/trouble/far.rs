//! A server that is far away: every answer takes its time.

use std::time::Duration;

use lock_testkit::faults::Injected;
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_testkit::servers::zookeeper::ZooKeeperServer;
use lock_zk::{LeaseOptions, ZkLocks};

use crate::support::{PROMPTLY, client, eventually, ms, server, soon};

const DELAY: Duration = ms(600);

/// A client with a link of its own, and that link.
async fn linked(server: &ZooKeeperServer) -> (ZkLocks, Proxy) {
    let link = Proxy::to(server.address(), Protocol::ZooKeeper).unwrap();
    (client(&format!("zk://{}", link.address()), ms(20_000)).await, link)
}

fn far_away(link: &Proxy) -> Injected<'static> {
    link.inject(LinkFault::new(Toxic::Delay { by: DELAY, jitter: Duration::ZERO }, Direction::ToClient))
}

#[tokio::test]
async fn a_lease_counts_from_when_it_was_asked_for() {
    let Some(server) = server().await else { return };
    let (locks, link) = linked(&server).await;
    let _far = far_away(&link);
    let ttl = ms(10_000);
    let mutex = locks.mutex("far").with_lease(LeaseOptions::with_ttl(ttl).without_renewal());
    let held = soon("the lock", PROMPTLY, mutex.lock()).await.unwrap();
    assert!(held.remaining() <= ttl - DELAY, "{:?} are promised, of {ttl:?}", held.remaining());
}

#[tokio::test]
async fn a_downgrade_has_no_gap_however_long_its_answer_takes() {
    let Some(server) = server().await else { return };
    let ((a, link), b) = (linked(&server).await, client(server.url(), ms(20_000)).await);
    let write = a.rwlock("far").write().await.unwrap();
    let other = b.rwlock("far");
    let waiting = tokio::spawn(async move { other.write().await.unwrap() });
    eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    let far = far_away(&link);
    let read = soon("the downgrade", PROMPTLY, write.downgrade()).await.unwrap();
    assert!(!waiting.is_finished(), "a writer beside a reader");
    let seen = b.rwlock("far").inspect().await.unwrap();
    assert_eq!(seen.holders.iter().map(|holder| holder.grant).collect::<Vec<_>>(), [Some(read.grant_id())]);
    far.heal().unwrap();
    read.release().await.unwrap();
    soon("the writer", PROMPTLY, waiting).await.unwrap().release().await.unwrap();
}
