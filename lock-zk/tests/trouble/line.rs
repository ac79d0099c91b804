//! The line: who watches whom, and what is in it that does not belong there.

use lock_testkit::servers::zookeeper::NodeKind;
use lock_zk::{ErrorKind, LockName, SessionState};

use crate::support::{PROMPTLY, SESSION, client, eventually, fails, maker, ms, nodes, server, soon};

#[tokio::test]
async fn waiters_of_one_process_watch_nothing_of_their_own() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), SESSION).await, client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("local").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (number, locks) in [&a, &a, &a, &b, &b, &b].into_iter().enumerate() {
        let lock = locks.mutex("local");
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap().release().await }));
        eventually("in line", PROMPTLY, async || nodes(&truth, "local").await.len() == number + 2).await;
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
    let (a, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("deleted").lock().await.unwrap();
    let other = a.mutex("deleted");
    let waiting = tokio::spawn(async move { other.lock().await });
    eventually("two in line", PROMPTLY, async || nodes(&truth, "deleted").await.len() == 2).await;
    truth.delete(&nodes(&truth, "deleted").await[1]).await.unwrap();
    held.release().await.unwrap();
    let next = soon("granted all the same", PROMPTLY, waiting).await.unwrap().unwrap();
    assert_eq!(nodes(&truth, "deleted").await.len(), 1, "a grant without a node");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_node_of_another_layout_is_named_and_nobody_is_let_in_beside_it() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    let mutex = a.mutex(LockName::at_key("/jobs/import").unwrap());
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
    let (a, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    for _ in 0..2 {
        let held = a.mutex("container").lock().await.unwrap();
        assert_ne!(maker(&truth, &nodes(&truth, "container").await[0]).await, 0, "the node outlives its session");
        held.release().await.unwrap();
        assert!(truth.delete("/lock/mutex/container").await.unwrap());
        assert!(truth.delete("/lock/mutex").await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_waiters_than_can_be_watched_for_keep_their_session_and_have_their_turns() {
    let Some(server) = server().await else { return };
    let long = ms(10_000);
    let (a, b) = (client(server.url(), long).await, client(server.url(), long).await);
    // Of paths this long a client watches about 175.
    let name = |number: usize| format!("{number:0>600}");
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for number in 0..300 {
        held.push(a.mutex(name(number)).with_ttl(long).lock().await.unwrap());
        let lock = b.mutex(name(number));
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap().release().await }));
    }
    let watches = async || server.figure("zk_watch_count").await.unwrap();
    eventually("as many watches as there may be", PROMPTLY, async || watches().await > 150).await;
    assert!(watches().await < 200, "{} watches", watches().await);
    // What the client crate cannot restore now costs it the session.
    server.restart().await.unwrap();
    eventually("watched again", PROMPTLY, async || watches().await > 150).await;
    for held in held {
        held.release().await.unwrap();
    }
    for waiter in waiting {
        soon("every waiter has its turn", PROMPTLY, waiter).await.unwrap().unwrap();
    }
    assert_eq!(b.session_state(), SessionState::Connected);
}

#[tokio::test]
async fn a_hand_over_within_a_process_takes_three_requests() {
    const TURNS: i64 = 200;
    let Some(server) = server().await else { return };
    let a = client(server.url(), ms(20_000)).await;
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let mutex = a.mutex("local");
    mutex.lock().await.unwrap().release().await.unwrap();
    let before = received().await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let mutex = mutex.clone();
            tokio::spawn(async move {
                for _ in 0..TURNS / 8 {
                    mutex.lock().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        soon("every turn is taken", PROMPTLY, task).await.unwrap();
    }
    // Create, list, and the transaction that deletes; a few pings and beats, and a listing where nobody waited.
    let requests = received().await - before;
    assert!(requests <= TURNS * 3 + TURNS / 4, "{requests} requests for {TURNS} turns");
}

#[tokio::test]
async fn a_lock_is_not_handed_over_to_a_waiter_whose_node_is_gone() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), SESSION).await, client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("gone").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (number, locks) in [&a, &b].into_iter().enumerate() {
        let lock = locks.mutex("gone");
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        eventually("in line", PROMPTLY, async || nodes(&truth, "gone").await.len() == number + 2).await;
    }
    let (theirs, ours) = (waiting.pop().unwrap(), waiting.pop().unwrap());
    truth.delete(&nodes(&truth, "gone").await[1]).await.unwrap();
    held.release().await.unwrap();
    // The other process was before ours, whose place is gone.
    let first = soon("the other process has its turn", PROMPTLY, theirs).await.unwrap();
    assert!(!ours.is_finished(), "two hold one lock");
    first.release().await.unwrap();
    soon("then ours", PROMPTLY, ours).await.unwrap().release().await.unwrap();
}
