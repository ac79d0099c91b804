//! Locks that stay within a process: the holder hands over by one transaction.

use crate::support::{PROMPTLY, SESSION, client, eventually, ms, nodes, server, soon};

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
