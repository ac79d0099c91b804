//! Paths shared with clients that name their nodes otherwise: kazoo's, and those of ZooKeeper's own recipe.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient, ZooKeeperServer};
use lock_zk::{Dialect, ErrorKind, LockName, ZkConfig, ZkLocks};

use crate::support::{LASTING, PROMPTLY, connected, eventually, fails, link, ms, over, server, soon};

const PATH: &str = "/jobs/shared";
const KAZOO: &str = "0f8fad5bd9cb469fa16570867728950e";
const CURATOR: &str = "_c_0f8fad5b-d9cb-469f-a165-70867728950e";

async fn speaking(server: &ZooKeeperServer, dialect: Dialect) -> ZkLocks {
    let config = ZkConfig::new(server.url()).with_session_timeout(LASTING).with_tick_time(ms(200));
    connected(config.with_dialect_at(PATH, dialect)).await
}

fn shared() -> LockName {
    LockName::from_key(PATH).unwrap()
}

/// Another library's client takes a place in the queue; the path of its node.
async fn foreign(truth: &ZooKeeperClient, stem: &str) -> String {
    truth.create_all(PATH).await.unwrap();
    truth.create(&format!("{PATH}/{stem}"), b"host", NodeKind::EphemeralSequential).await.unwrap().unwrap()
}

async fn names(truth: &ZooKeeperClient) -> Vec<String> {
    let mut names = truth.children(PATH).await.unwrap().unwrap_or_default();
    names.sort_by_key(|name| name[name.len() - 10..].to_owned());
    names
}

/// A holder of the other library keeps us out, our waiter follows it, and our own node is one that it understands.
async fn takes_turns(dialect: Dialect, theirs: &str, token: &str) {
    let Some(server) = server().await else { return };
    let (locks, truth) = (speaking(&server, dialect).await, server.client().await.unwrap());
    let mutex = locks.mutex(shared());
    let holder = foreign(&truth, theirs).await;
    assert!(mutex.try_lock().await.unwrap().is_none(), "granted beside {holder}");
    let waiter = mutex.clone();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    eventually("in the queue", PROMPTLY, async || names(&truth).await.len() == 2).await;
    let ours = names(&truth).await.remove(1);
    let stem = &ours[..ours.len() - 10];
    assert!(stem.ends_with(token), "{ours}");
    truth.delete(&holder).await.unwrap();
    let held = soon("granted after them", PROMPTLY, waiting).await.unwrap().unwrap();
    assert_eq!(mutex.inspect().await.unwrap().holders[0].grant, Some(held.grant_id()));
    held.release().await.unwrap();
    assert!(names(&truth).await.is_empty());
}

#[tokio::test]
async fn a_path_of_kazoos_is_shared_with_kazoo() {
    takes_turns(Dialect::Kazoo, &format!("{KAZOO}__lock__"), "__lock__").await;
}

#[tokio::test]
async fn a_path_of_zookeepers_recipe_is_shared_with_it() {
    takes_turns(Dialect::ZooKeeper, "x-72057594037927937-", "-").await;
}

#[tokio::test]
async fn kazoos_nodes_count_where_that_is_wished() {
    takes_turns(Dialect::CuratorAndKazoo, &format!("{KAZOO}__lock__"), "-lock-").await;
    takes_turns(Dialect::CuratorAndKazoo, &format!("{CURATOR}-lock-"), "-lock-").await;
}

#[tokio::test]
async fn a_node_of_another_dialect_is_named_in_the_error() {
    let Some(server) = server().await else { return };
    let truth = server.client().await.unwrap();
    let kazoo = format!("{KAZOO}__lock__");
    let curator = format!("{CURATOR}-lock-");
    let pairs = [
        (Dialect::Curator, kazoo.as_str()),
        (Dialect::Curator, "x-72057594037927937-"),
        (Dialect::Kazoo, curator.as_str()),
        (Dialect::ZooKeeper, curator.as_str()),
        (Dialect::CuratorAndKazoo, "x-72057594037927937-"),
    ];
    for (dialect, theirs) in pairs {
        let locks = speaking(&server, dialect).await;
        let node = foreign(&truth, theirs).await;
        let error = fails(locks.mutex(shared()).try_lock().await, ErrorKind::Protocol);
        assert!(error.to_string().contains(&node), "{dialect:?}: {error}");
        truth.delete(&node).await.unwrap();
        let held = soon("free again", PROMPTLY, locks.mutex(shared()).lock()).await.unwrap();
        held.release().await.unwrap();
    }
}

#[tokio::test]
async fn kazoos_readers_and_writers_are_respected_and_a_writer_can_become_a_reader() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (speaking(&server, Dialect::Kazoo).await, server.client().await.unwrap());
    let lock = locks.rwlock(shared());
    let reader = foreign(&truth, &format!("{KAZOO}__rlock__")).await;
    let beside = lock.read().await.unwrap();
    assert!(lock.try_write().await.unwrap().is_none(), "a writer beside readers");
    beside.release().await.unwrap();
    truth.delete(&reader).await.unwrap();
    let write = soon("the writer", PROMPTLY, lock.write()).await.unwrap();
    assert!(names(&truth).await[0].contains("__lock__"));
    let read = write.downgrade().await.unwrap();
    assert!(names(&truth).await[0].contains("__rlock__"));
    let writer = foreign(&truth, &format!("{KAZOO}__lock__")).await;
    assert!(lock.try_read().await.unwrap().is_none(), "a reader behind kazoo's writer");
    truth.delete(&writer).await.unwrap();
    read.release().await.unwrap();
}

#[tokio::test]
async fn a_kind_that_a_dialect_does_not_have_is_refused() {
    let Some(server) = server().await else { return };
    let locks = speaking(&server, Dialect::ZooKeeper).await;
    fails(locks.rwlock(shared()).try_read().await, ErrorKind::Unsupported);
    fails(locks.semaphore(shared(), 2).acquire().await, ErrorKind::Unsupported);
}

/// A question between the listing and the read finds neither the node that was listed nor nobody.
#[tokio::test]
async fn a_lock_that_is_never_free_is_told_with_a_holder_while_it_is_handed_over() {
    let Some(server) = server().await else { return };
    let link = link(&server);
    let config = ZkConfig::new(over([&link])).with_session_timeout(LASTING).with_tick_time(ms(200));
    let locks = connected(config.with_dialect_at(PATH, Dialect::ZooKeeper)).await;
    let truth = server.client().await.unwrap();
    let first = foreign(&truth, "x-72057594037927937-").await;
    foreign(&truth, "x-72057594037927938-").await;
    // The read of the node, of which the listing has told.
    let held = link.inject(LinkFault::new(Toxic::Hold, Direction::ToServer).on_request(1, first.clone()));
    let mutex = locks.mutex(shared());
    let asking = tokio::spawn(async move { mutex.holder().await });
    held.applied(PROMPTLY).await.unwrap();
    assert!(truth.delete(&first).await.unwrap());
    held.heal().unwrap();
    let told = soon("an answer", PROMPTLY, asking).await.unwrap().unwrap();
    assert!(told.is_some(), "the second one holds it");
}
