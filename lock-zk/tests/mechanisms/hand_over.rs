//! Locks that stay within a process: the holder hands over by one transaction.

use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_zk::{ErrorKind, LeaseOptions, SessionState};

use crate::support::{LASTING, PROMPTLY, client, eventually, fails, link, ms, nodes, over, server, soon};

/// One transaction deletes the holder's node and makes that of the one before, who wants the lock again. A waiter that comes right behind a
/// node of its own process lists nothing.
#[tokio::test]
async fn a_hand_over_within_a_process_takes_one_request() {
    const TURNS: i64 = 200;
    let Some(server) = server().await else { return };
    let a = client(server.url(), LASTING).await;
    let received = async || server.figure("zk_packets_received").await.unwrap();
    for kind in ["mutex", "write lock", "permit", "two permits of four"] {
        let turn = {
            let (mutex, write) = (a.mutex("local"), a.rwlock("local"));
            let (one, two) = (a.semaphore("local", 1), a.semaphore("of four", 4));
            async move || match kind {
                "mutex" => mutex.lock().await.unwrap().release().await.unwrap(),
                "write lock" => write.write().await.unwrap().release().await.unwrap(),
                "permit" => one.acquire().await.unwrap().release().await.unwrap(),
                _ => two.acquire_many(2).await.unwrap().release().await.unwrap(),
            }
        };
        turn().await;
        let before = received().await;
        let tasks = (0..8).map(|_| async {
            for _ in 0..TURNS / 8 {
                turn().await;
            }
        });
        soon("every turn is taken", PROMPTLY * 3, join_all(tasks)).await;
        // A few pings and heartbeats, and two requests where nobody waited, or two answers were told in another order.
        let requests = received().await - before;
        assert!(requests <= TURNS + TURNS / 2, "{kind}: {requests} requests for {TURNS} turns");
    }
}

/// The node of an attempt of this process is gone, and its client does not know yet: whoever tries looks at the servers.
#[tokio::test]
async fn a_try_behind_a_node_of_its_own_process_looks_whether_that_is_there() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = a.mutex("gone").with_ttl(ms(60_000)).lock().await.unwrap();
    truth.delete(&nodes(&truth, "gone").await[0]).await.unwrap();
    a.mutex("gone").try_lock().await.unwrap().expect("nobody has it").release().await.unwrap();
    fails(held.release().await, ErrorKind::NotHeld);
}

/// Its holder renews nothing, and so does not notice for a long time that its node is gone.
#[tokio::test]
async fn a_wait_behind_a_node_of_its_own_process_that_is_gone_is_granted_soon() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let lease = LeaseOptions::new(ms(3_600_000)).with_auto_renew(false);
    let held = a.mutex("gone").with_lease(lease).lock().await.unwrap();
    truth.delete(&nodes(&truth, "gone").await[0]).await.unwrap();
    let mutex = a.mutex("gone");
    let next = soon("granted", PROMPTLY, mutex.lock()).await.unwrap();
    assert!(held.lost().now_or_never().is_none(), "the holder has noticed before");
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_not_handed_over_to_a_waiter_whose_node_is_gone() {
    let Some(server) = server().await else { return };
    let (a, b, truth) =
        (client(server.url(), LASTING).await, client(server.url(), LASTING).await, server.client().await.unwrap());
    let held = a.mutex("gone").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (number, locks) in [&a, &b].into_iter().enumerate() {
        let lock = locks.mutex("gone");
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        eventually("in the queue", PROMPTLY, async || nodes(&truth, "gone").await.len() == number + 2).await;
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

/// Both go in one transaction, which the servers refuse because of the one.
#[tokio::test]
async fn a_hand_over_to_a_node_that_is_gone_does_not_hold_up_another_one() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), LASTING).await, server.client().await.unwrap());
    let names = ["gone", "fine"];
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for name in names {
        held.push(a.mutex(name).with_ttl(ms(60_000)).lock().await.unwrap());
        let lock = a.mutex(name);
        waiting.push(tokio::spawn(async move { lock.lock().await.unwrap() }));
        let waits = async || a.mutex(name).inspect().await.unwrap().waiters.len() == 1;
        eventually("in the queue", PROMPTLY, waits).await;
    }
    truth.delete(&nodes(&truth, "gone").await[1]).await.unwrap();
    for released in soon("both releases", PROMPTLY, join_all(held.into_iter().map(|held| held.release()))).await {
        released.unwrap();
    }
    for (name, waiting) in names.into_iter().zip(waiting) {
        soon(name, PROMPTLY, waiting).await.unwrap().release().await.unwrap();
        assert!(nodes(&truth, name).await.is_empty(), "{name}");
    }
}

#[tokio::test]
async fn a_hand_over_of_which_the_answer_is_lost_is_no_loss_of_the_lock() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let a = client(&over([&link]), LASTING).await;
    let held = a.mutex("lost").with_ttl(ms(60_000)).lock().await.unwrap();
    let other = a.mutex("lost");
    let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
    // Answered behind the listing of whoever waits, who therefore knows whom he waits for.
    eventually("in the queue", PROMPTLY, async || a.mutex("lost").inspect().await.unwrap().waiters.len() == 1).await;
    let node = nodes(&truth, "lost").await.remove(0);
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToClient).on_request(1, node));
    fails(soon("the release", PROMPTLY, held.release()).await, ErrorKind::Indeterminate);
    lost.heal().unwrap();
    soon("the next", PROMPTLY, waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn nothing_is_granted_in_a_session_that_is_suspended() {
    let Some(server) = server().await else { return };
    let link = link(&server);
    let a = client(&over([&link]), LASTING).await;
    let held = a.mutex("suspended").with_ttl(ms(60_000)).lock().await.unwrap();
    let mutex = a.mutex("suspended");
    let mut waiting = pin!(mutex.lock());
    tokio::select! {
        biased;
        granted = &mut waiting => panic!("granted although somebody holds it: {granted:?}"),
        // Answered behind its own listing, as above.
        () = eventually("in the queue", PROMPTLY, async || mutex.inspect().await.unwrap().waiters.len() == 1) => {}
    }
    // The hand-over is answered, and the link cut before whoever waits looks.
    held.release().await.unwrap();
    let cut = [Toxic::Refuse, Toxic::Reset].map(|toxic| link.inject(LinkFault::new(toxic, Direction::Both)));
    eventually("suspended", PROMPTLY, async || a.session_state() == SessionState::Suspended).await;
    assert!(waiting.as_mut().now_or_never().is_none(), "granted in a suspended session");
    drop(cut);
    soon("granted when a server is reached again", PROMPTLY, waiting).await.unwrap().release().await.unwrap();
}
