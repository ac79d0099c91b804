//! A client that comes to a server which is behind: its search for a place in the queue goes behind a `sync`.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit_servers::zookeeper::{ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use lock_zk::SessionState;

use crate::support::{LASTING, PROMPTLY, client, eventually, link, ms, nodes, over, parts, soon, there};

/// Sees the first request that contains this, and does nothing to it.
fn seen(containing: &str) -> LinkFault {
    LinkFault::new(Toxic::Delay { by: ms(0), jitter: ms(0) }, Direction::ToServer).on_request(1, containing)
}

/// Returns how often the leader has counted this.
async fn counted(leader: &ZooKeeperServer, what: &str) -> i64 {
    leader.figure(what).await.unwrap()
}

#[tokio::test]
async fn no_second_place_is_asked_for_while_the_first_one_may_be_unknown_to_the_server() {
    // 10 s, in which servers that are not heard are waited for.
    let options = ZooKeeperOptions::new().with_severable_links().with_setting("syncLimit", "50");
    let Some(ensemble) = there(ZooKeeperEnsemble::start_with(&options).await) else { return };
    let (leader, followers) = parts(&ensemble).await;
    let links = followers.map(link);
    let locks = client(&over(&links), LASTING).await;
    let mutex = locks.mutex("behind");
    mutex.lock().await.unwrap().release().await.unwrap();
    let (here, there) = if links[0].open_connections() > 0 { (0, 1) } else { (1, 0) };

    // The leader proposes a place in the queue, of which its followers do not hear yet.
    let unheard = [here, there].map(|to| ensemble.hold(leader, followers[to]).unwrap());
    let proposed = counted(leader, "zk_proposal_count").await;
    let waiting = tokio::spawn(async move { mutex.lock().await });
    eventually("proposed", PROMPTLY, async || counted(leader, "zk_proposal_count").await > proposed).await;
    // The client goes to the other follower, which learns from the leader that the session goes on, and of the proposal;
    // but the leader does not learn that it has, so that nothing is committed.
    let moved = counted(leader, "zk_revalidate_count").await;
    let _gone = [Toxic::Refuse, Toxic::Reset].map(|toxic| links[here].inject(LinkFault::new(toxic, Direction::Both)));
    eventually("moved", PROMPTLY, async || counted(leader, "zk_revalidate_count").await > moved).await;
    let unacknowledged = ensemble.hold(followers[there], leader).unwrap();
    let (searched, again) = (links[there].inject(seen("/lock/mutex/behind")), links[there].inject(seen("-lock-")));
    let [still_unheard, heard] = unheard;
    drop(heard);
    eventually("connected", PROMPTLY, async || locks.session_state() == SessionState::Connected).await;
    searched.applied(PROMPTLY).await.unwrap();
    assert!(again.applied(ms(500)).await.is_err(), "two places in the queue for one attempt");

    drop((unacknowledged, still_unheard));
    let held = soon("granted", PROMPTLY * 2, waiting).await.unwrap().unwrap();
    let truth = ensemble.client().await.unwrap();
    assert_eq!(nodes(&truth, "behind").await.len(), 1, "a place that nobody knows");
    held.release().await.unwrap();
    eventually("nothing is left", PROMPTLY, async || nodes(&truth, "behind").await.is_empty()).await;
}
