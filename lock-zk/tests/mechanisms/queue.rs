//! The queue: its watches, and nodes in it that do not belong there.

use futures_util::FutureExt;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::NodeKind;
use lock_zk::{ErrorKind, LockName, LossReason};

use crate::support::{
    LASTING, PROMPTLY, client, eventually, fails, link, maker, ms, nodes, over, server, soon, watched,
};

#[tokio::test]
async fn waiters_of_one_process_watch_nothing_of_their_own() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), LASTING).await, client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = a.mutex("local").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (number, locks) in [&a, &a, &a, &b, &b, &b].into_iter().enumerate() {
        let lock = locks.mutex("local");
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap().release().await }));
        eventually("in the queue", PROMPTLY, async || nodes(&truth, "local").await.len() == number + 2).await;
    }
    // Only the first of the other process has somebody before it whom it cannot hear of otherwise.
    eventually("one watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    held.release().await.unwrap();
    for waiter in waiting {
        soon("every waiter has its turn", PROMPTLY, waiter).await.unwrap().unwrap();
    }
    eventually("no watch is left", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 0).await;
    assert!(nodes(&truth, "local").await.is_empty());
}

#[tokio::test]
async fn a_waiter_whose_node_is_deleted_stands_in_line_again() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = a.mutex("deleted").lock().await.unwrap();
    let other = a.mutex("deleted");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("two in the queue", PROMPTLY, async || nodes(&truth, "deleted").await.len() == 2).await;
    truth.delete(&nodes(&truth, "deleted").await[1]).await.unwrap();
    held.release().await.unwrap();
    let next = soon("granted all the same", PROMPTLY, waiting).await.unwrap().unwrap();
    assert_eq!(nodes(&truth, "deleted").await.len(), 1, "a grant without a node");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_layout_is_named_and_nobody_is_let_in_beside_it() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let mutex = a.mutex(LockName::from_key("/jobs/import").unwrap());
    mutex.lock().await.unwrap().release().await.unwrap();
    let kazoo = "/jobs/import/0f8fad5bd9cb469fa16570867728950e__lock__";
    let node = truth.create(kazoo, b"host", NodeKind::EphemeralSequential).await.unwrap().unwrap();
    let error = fails(mutex.try_lock().await, ErrorKind::Protocol);
    assert!(error.to_string().contains(&node), "{error}");
    fails(mutex.lock().await, ErrorKind::Protocol);
    truth.delete(&node).await.unwrap();
    soon("free again", PROMPTLY, mutex.lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_the_server_has_removed_is_made_again() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    for _ in 0..2 {
        let held = a.mutex("container").lock().await.unwrap();
        assert_ne!(maker(&truth, &nodes(&truth, "container").await[0]).await, 0, "the node outlives its session");
        held.release().await.unwrap();
        assert!(truth.delete("/lock/mutex/container").await.unwrap());
        assert!(truth.delete("/lock/mutex").await.unwrap());
    }
}

#[tokio::test]
async fn a_node_of_the_same_name_from_another_session_is_no_grant() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = a.mutex("forged").with_lease(watched()).lock().await.unwrap();
    let node = nodes(&truth, "forged").await.remove(0);
    assert!(truth.delete(&node).await.unwrap());
    truth.create(&node, b"", NodeKind::Ephemeral).await.unwrap().unwrap();
    let reason = soon("the holder is told", PROMPTLY, held.lost()).await;
    assert_eq!(reason, LossReason::Taken);
}

/// More than 1 MiB of names, which is what servers take of a request (`jute.maxbuffer`): what they answer may be longer.
#[tokio::test]
async fn a_queue_whose_listing_is_longer_than_a_request_may_be_is_listed() {
    const NODES: u32 = 19_000;
    let Some(server) = server().await else { return };
    let (locks, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let directory = "/lock/mutex/full";
    truth.create_all(directory).await.unwrap();
    for number in 0..NODES {
        let path = format!("{directory}/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-{number:010}");
        truth.create(&path, b"", NodeKind::Persistent).await.unwrap();
    }
    assert!(locks.mutex("full").try_lock().await.unwrap().is_none());
    let seen = locks.mutex("full").inspect().await.unwrap();
    assert!(seen.more_waiters > 18_000, "{}", seen.more_waiters);
    let held = locks.mutex("another").try_lock().await.unwrap().unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_forced_release_reads_no_node_of_anybody_else() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let (holder, operator) = (client(server.url(), LASTING).await, client(&over([&link]), LASTING).await);
    let held = holder.mutex("crowded").lock().await.unwrap();
    let foreign = "/lock/mutex/crowded/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";
    let waiter = truth.create(foreign, b"", NodeKind::EphemeralSequential).await.unwrap().unwrap();
    let nothing = Toxic::Delay { by: ms(0), jitter: ms(0) };
    let read = link.inject(LinkFault::new(nothing, Direction::ToServer).on_request(1, waiter));
    let mutex = operator.mutex("crowded");
    assert!(mutex.force_release(held.grant_id(), "stuck").await.unwrap());
    assert!(read.proven().is_err(), "the waiter's node was read");
    assert_eq!(mutex.inspect().await.unwrap().holders.len(), 1);
    read.proven().unwrap();
}

/// Some are dropped before they are sent, some with their request under way, some with its answer.
#[tokio::test]
async fn waits_that_are_dropped_while_they_are_sent_leave_nothing() {
    const WAITS: usize = 200;
    let Some(server) = server().await else { return };
    let (holder, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = holder.mutex("crowd").with_ttl(LASTING).lock().await.unwrap();
    let waiters = client(server.url(), LASTING).await;
    let mutex = waiters.mutex("crowd").with_ttl(LASTING);
    for turns in 0..20 {
        let mut waiting: Vec<_> = (0..WAITS).map(|_| Box::pin(mutex.lock())).collect();
        for waiting in &mut waiting {
            assert!(waiting.now_or_never().is_none(), "granted while another has it");
        }
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(waiting);
        // Nothing that is sent later makes one: so asks whoever comes last.
        assert!(soon("a try", PROMPTLY, mutex.try_lock()).await.unwrap().is_none());
        eventually("nothing is left", PROMPTLY, async || nodes(&truth, "crowd").await.len() == 1).await;
    }
    soon("the end of the client", PROMPTLY, waiters.close()).await.unwrap();
    held.release().await.unwrap();
}
