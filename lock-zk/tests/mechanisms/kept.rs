//! Sessions that are kept while a server starts again, or dies.

use lock_testkit::testing::about_time;
use lock_testkit_servers::zookeeper::ZooKeeperEnsemble;
use lock_zk::{Access, SessionState, ZkConfig};

use crate::patience::{LONG, patience, patient};
use crate::support::{PROMPTLY, connected, eventually, ms, nodes, parts, server, soon, there};

#[test]
fn a_restart_within_the_session_costs_nothing() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (a, b, truth) = (patient(server.url()).await, patient(server.url()).await, server.client().await.unwrap());
        let held = a.mutex("restart").with_ttl(LONG).lock().await.unwrap();
        let other = b.mutex("restart");
        let waiting = tokio::spawn(async move { other.lock().await });
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "restart").await.len() == 2).await;
        drop(truth);
        server.restart().await.unwrap();
        let truth = server.client().await.unwrap();
        assert_eq!(nodes(&truth, "restart").await.len(), 2, "the waiter's place was lost");
        eventually("connected", LONG, async || a.session_state() == SessionState::Connected).await;
        assert!(held.is_held() && !waiting.is_finished());
        soon("the release", PROMPTLY, held.release()).await.unwrap();
        let next = soon("the waiter is granted", LONG, waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    });
}

#[test]
fn more_waiters_than_can_be_watched_for_keep_their_session_and_have_their_turns() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (a, b) = (patient(server.url()).await, patient(server.url()).await);
        // Of paths this long a client watches about 175.
        let name = |number: usize| format!("{number:0>600}");
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for number in 0..300 {
            held.push(a.mutex(name(number)).with_ttl(LONG).lock().await.unwrap());
            let lock = b.mutex(name(number));
            waiting.push(tokio::spawn(async move { lock.lock().await.unwrap().release().await }));
        }
        let watches = async || server.figure("zk_watch_count").await.unwrap();
        eventually("as many watches as there may be", PROMPTLY, async || watches().await > 150).await;
        assert!(watches().await < 200, "{} watches", watches().await);
        // What the client crate cannot restore now costs it the session.
        server.restart().await.unwrap();
        eventually("watched again", PROMPTLY * 2, async || watches().await > 150).await;
        for held in held {
            held.release().await.unwrap();
        }
        for waiter in waiting {
            soon("every waiter has its turn", PROMPTLY, waiter).await.unwrap().unwrap();
        }
        assert_eq!(b.session_state(), SessionState::Connected);
    });
}

#[tokio::test]
async fn rights_are_shown_again_after_a_reconnection() {
    let Some(server) = server().await else { return };
    let long = ZkConfig::new(server.url()).with_session_timeout(LONG).with_tick_time(ms(200)).with_client(patience());
    let locks = connected(long.with_prefix("own").with_access(Access::Creator).with_digest("me", "secret")).await;
    let held = locks.mutex("again").with_ttl(LONG).lock().await.unwrap();
    server.restart().await.unwrap();
    soon("the release", PROMPTLY, held.release()).await.unwrap();
    soon("the next", PROMPTLY, locks.mutex("again").lock()).await.unwrap().release().await.unwrap();
}

#[test]
fn the_death_of_the_leader_costs_no_lock_and_no_place() {
    about_time(async || {
        let Some(ensemble) = there(ZooKeeperEnsemble::start_own().await) else { return };
        let (a, b) = (patient(ensemble.url()).await, patient(ensemble.url()).await);
        let held = a.mutex("leader").with_ttl(LONG).lock().await.unwrap();
        let other = b.mutex("leader");
        let waiting = tokio::spawn(async move { other.lock().await });
        eventually("one waits", PROMPTLY, async || b.mutex("leader").inspect().await.unwrap().waiters.len() == 1).await;
        let (leader, _) = parts(&ensemble).await;
        leader.kill().unwrap();
        ensemble.until_another_leader(leader).await.unwrap();
        let seen = async || b.mutex("leader").inspect().await.ok();
        eventually("the queue is as it was", LONG, async || {
            seen().await.is_some_and(|seen| seen.holders[0].grant == Some(held.grant_id()) && seen.waiters.len() == 1)
        })
        .await;
        eventually("connected", LONG, async || a.session_state() == SessionState::Connected).await;
        assert!(held.is_held(), "the holder lost its lock");
        soon("the release", PROMPTLY, held.release()).await.unwrap();
        let next = soon("the waiter is granted", LONG, waiting).await.unwrap().unwrap();
        next.release().await.unwrap();
    });
}
