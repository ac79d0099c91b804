//! The mutex without a queue.

use futures_util::future::join_all;
use lock_testkit::testing::about_time;
use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperServer};
use lock_zk::{Access, ErrorKind, LockName, SessionState, ZkConfig, ZkLocks};

use crate::patience::{LONG, patience};
use crate::support::{PROMPTLY, client, connected, eventually, fails, maker, ms, nodes, parts, server, soon, there};

fn config(url: &str) -> ZkConfig {
    ZkConfig::new(url).with_session_timeout(ms(8000)).with_tick_time(ms(200)).with_unfair_mutex(true)
}

async fn unfair(server: &ZooKeeperServer) -> ZkLocks {
    connected(config(server.url())).await
}

#[tokio::test]
async fn a_claim_and_a_release_take_one_request_each() {
    const TURNS: i64 = 200;
    let Some(server) = server().await else { return };
    let mutex = unfair(&server).await.mutex("cheap");
    mutex.lock().await.unwrap().release().await.unwrap();
    let received = async || server.figure("zk_packets_received").await.unwrap();
    let before = received().await;
    for _ in 0..TURNS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    // And a few pings and heartbeats.
    let requests = received().await - before;
    assert!((TURNS * 2..TURNS * 2 + TURNS / 4).contains(&requests), "{requests} requests for {TURNS} turns");
}

#[tokio::test]
async fn a_token_is_the_transaction_that_made_the_node_and_grows_though_the_directory_goes() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (unfair(&server).await, server.client().await.unwrap());
    let mutex = locks.mutex("token").fenced().unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let held = mutex.lock().await.unwrap();
        let node = nodes(&truth, "token").await.remove(0);
        let made = truth.exists(&node).await.unwrap().unwrap().czxid;
        assert_eq!(held.fencing_token().as_u64(), u64::try_from(made).unwrap());
        assert!(made > last, "{made:#x} after {last:#x}");
        assert_ne!(maker(&truth, &node).await, 0, "the node outlives its session");
        last = made;
        held.release().await.unwrap();
        // As the server does when it has become empty.
        assert!(truth.delete("/lock/mutex/token").await.unwrap());
    }
}

#[tokio::test]
async fn a_late_release_frees_nobody_else_also_when_the_directory_was_made_anew() {
    let Some(server) = server().await else { return };
    let (a, b, truth) = (unfair(&server).await, unfair(&server).await, server.client().await.unwrap());
    let taken = a.mutex("late").lock().await.unwrap();
    assert!(truth.delete(&nodes(&truth, "late").await[0]).await.unwrap());
    assert!(truth.delete("/lock/mutex/late").await.unwrap());
    let held = b.mutex("late").lock().await.unwrap();
    fails(taken.release().await, ErrorKind::NotHeld);
    assert_eq!(nodes(&truth, "late").await.len(), 1, "the next holder was freed");
    assert!(a.mutex("late").try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
}

#[tokio::test]
async fn who_claims_and_who_stands_in_line_exclude_each_other() {
    let Some(server) = server().await else { return };
    let (claims, stands) = (unfair(&server).await, client(server.url(), ms(8000)).await);
    let truth = server.client().await.unwrap();
    let first = stands.mutex("both").lock().await.unwrap();
    assert!(claims.mutex("both").try_lock().await.unwrap().is_none());
    let (late, early) = (stands.mutex("both"), claims.mutex("both"));
    let claiming = tokio::spawn(async move { early.lock().await.unwrap() });
    eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    let standing = tokio::spawn(async move { late.lock().await.unwrap() });
    eventually("two in the queue", PROMPTLY, async || nodes(&truth, "both").await.len() == 2).await;
    first.release().await.unwrap();
    // Whoever waits in the queue goes first, whoever came first.
    let second = soon("the next in the queue", PROMPTLY, standing).await.unwrap();
    assert!(!claiming.is_finished(), "two hold one lock");
    second.release().await.unwrap();
    let third = soon("the claim", PROMPTLY, claiming).await.unwrap();
    assert!(stands.mutex("both").try_lock().await.unwrap().is_none());
    let fourth = stands.mutex("both");
    let standing = tokio::spawn(async move { fourth.lock().await.unwrap() });
    eventually("behind the claim", PROMPTLY, async || nodes(&truth, "both").await.len() == 2).await;
    assert!(!standing.is_finished(), "two hold one lock");
    third.release().await.unwrap();
    soon("the next in the queue", PROMPTLY, standing).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn everybody_has_a_turn_and_nothing_is_left() {
    let Some(server) = server().await else { return };
    let (a, b, truth) = (unfair(&server).await, unfair(&server).await, server.client().await.unwrap());
    let held = a.mutex("herd").lock().await.unwrap();
    let waiting: Vec<_> = [&a, &a, &a, &b, &b, &b]
        .into_iter()
        .map(|locks| {
            let mutex = locks.mutex("herd");
            tokio::spawn(async move { mutex.lock().await.unwrap().release().await })
        })
        .collect();
    // Those of the holder's own client hear of its release without one.
    eventually("watches", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() >= 1).await;
    assert_eq!(nodes(&truth, "herd").await.len(), 1, "a waiter has a node");
    held.release().await.unwrap();
    for waiter in waiting {
        soon("every waiter has its turn", PROMPTLY, waiter).await.unwrap().unwrap();
    }
    assert!(nodes(&truth, "herd").await.is_empty());
    eventually("no watch is left", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 0).await;
}

#[tokio::test]
async fn what_a_claim_makes_is_for_whom_the_client_says() {
    let Some(server) = server().await else { return };
    let own = || config(server.url()).with_prefix("own");
    let mine = connected(own().with_access(Access::Creator).with_digest("me", "secret")).await;
    let (other, truth) = (connected(own()).await, server.client().await.unwrap());
    let held = mine.mutex("kept").lock().await.unwrap();
    let id = held.grant_id().to_string();
    let uuid = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
    for path in ["/own/mutex/kept", &format!("/own/mutex/kept/_c_{uuid}-lock-0000000000")] {
        assert!(truth.exists(path).await.unwrap().is_some(), "{path}");
        truth.acl(path).await.unwrap_err();
    }
    fails(other.mutex("kept").try_lock().await, ErrorKind::Denied);
    held.release().await.unwrap();
    fails(other.mutex("kept").try_lock().await, ErrorKind::Denied);
    mine.mutex("kept").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn at_a_shared_path_everybody_stands_in_line() {
    let Some(server) = server().await else { return };
    let (locks, truth) = (unfair(&server).await, server.client().await.unwrap());
    let shared = LockName::from_key("/jobs/import").unwrap();
    let held = locks.mutex(shared.clone()).lock().await.unwrap();
    let other = locks.mutex(shared);
    let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
    let line = async || truth.children("/jobs/import").await.unwrap().unwrap().len();
    eventually("two in the queue", PROMPTLY, async || line().await == 2).await;
    held.release().await.unwrap();
    soon("the next in the queue", PROMPTLY, waiting).await.unwrap().release().await.unwrap();
}

#[test]
fn the_death_of_the_leader_costs_no_lock_and_lets_nobody_in_beside_it() {
    about_time(async || {
        let Some(ensemble) = there(ZooKeeperEnsemble::start_own().await) else { return };
        let config = config(ensemble.url()).with_session_timeout(LONG).with_client(patience());
        let (a, b) = (connected(config.clone()).await, connected(config).await);
        let held = a.mutex("leader").with_ttl(LONG).fenced().unwrap().lock().await.unwrap();
        let other = b.mutex("leader").fenced().unwrap();
        let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
        eventually("a watch", PROMPTLY, async || {
            let counts = join_all(ensemble.servers().iter().map(|server| server.figure("zk_watch_count"))).await;
            counts.into_iter().any(|count| count.unwrap() == 1)
        })
        .await;
        let (leader, _) = parts(&ensemble).await;
        leader.kill().unwrap();
        ensemble.until_another_leader(leader).await.unwrap();
        let refused = async || matches!(b.mutex("leader").try_lock().await, Ok(None));
        eventually("an answer", LONG, refused).await;
        assert!(held.is_held() && !waiting.is_finished());
        let before = held.fencing_token();
        eventually("connected", LONG, async || a.session_state() == SessionState::Connected).await;
        soon("the release", PROMPTLY, held.release()).await.unwrap();
        let next = soon("the waiter has its turn", LONG, waiting).await.unwrap();
        assert!(next.fencing_token() > before);
        next.release().await.unwrap();
    });
}
