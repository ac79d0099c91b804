//! Creations whose answer is lost: the place in line is searched for by the attempt's id.

use lock_testkit::faults::StoreFault;
use lock_testkit::proxy::{Direction, LinkFault, Proxy, Toxic};
use lock_testkit::servers::zookeeper::{NodeKind, ZooKeeperEnsemble, ZooKeeperOptions, ZooKeeperServer};
use lock_zk::SessionState;

use crate::support::{PROMPTLY, client, eventually, link, maker, ms, nodes, over, server, soon, there};

const LONG: std::time::Duration = ms(20_000);

/// Sees the first request that contains this, and does nothing to it.
fn seen(containing: &str) -> LinkFault {
    LinkFault::new(Toxic::Delay { by: ms(0), jitter: ms(0) }, Direction::ToServer).on_request(1, containing)
}

#[tokio::test]
async fn a_node_of_another_session_is_no_place_in_line_whatever_id_it_has() {
    let Some(server) = server().await else { return };
    let (link, truth) = (link(&server), server.client().await.unwrap());
    let mutex = client(&over([&link]), LONG).await.mutex("lost");
    truth.create_all("/lock/mutex/lost").await.unwrap();
    let foreign = "/lock/mutex/lost/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";
    let holder = truth.create(foreign, b"", NodeKind::EphemeralSequential).await.unwrap().unwrap();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    eventually("two in line", PROMPTLY, async || nodes(&truth, "lost").await.len() == 2).await;
    let place = nodes(&truth, "lost").await.remove(1);
    let (session, stem) = (maker(&truth, &place).await, &place[..place.len() - 10]);
    let forged = truth.create(stem, b"", NodeKind::EphemeralSequential).await.unwrap().unwrap();
    // In its next session the waiter asks for a place again, and that is lost on its way.
    let id = stem.trim_start_matches("/lock/mutex/lost/");
    let lost = link.inject(LinkFault::new(Toxic::Reset, Direction::ToServer).on_request(1, id));
    StoreFault::StealSession { session }.inject(&server).await.unwrap().heal().unwrap();
    lost.applied(PROMPTLY).await.unwrap();
    eventually("a place of its own", PROMPTLY, async || {
        let others = [&holder, &forged, &place];
        nodes(&truth, "lost").await.iter().any(|node| node.starts_with(stem) && !others.contains(&node))
    })
    .await;
    for node in [holder, forged] {
        assert!(!waiting.is_finished(), "granted behind somebody else's node");
        truth.delete(&node).await.unwrap();
    }
    soon("granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// How often the leader has counted this.
async fn counted(leader: &ZooKeeperServer, what: &str) -> i64 {
    leader.figure(what).await.unwrap()
}

#[tokio::test]
async fn no_second_place_is_asked_for_while_the_first_one_may_be_unknown_to_the_server() {
    // 10 s, in which servers that are not heard are waited for.
    let options = ZooKeeperOptions::new().with_severable_links().with_setting("syncLimit", "50");
    let Some(ensemble) = there(ZooKeeperEnsemble::start_with(&options).await) else { return };
    let (leader, followers) = (ensemble.leader().await.unwrap(), ensemble.followers().await);
    let links: Vec<Proxy> = followers.iter().map(|follower| link(follower)).collect();
    let locks = client(&over(&links), LONG * 3).await;
    let mutex = locks.mutex("behind");
    mutex.lock().await.unwrap().release().await.unwrap();
    let (here, there) = if links[0].open_connections() > 0 { (0, 1) } else { (1, 0) };

    // The leader proposes a place in line, of which its followers do not hear yet.
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
    assert!(again.applied(ms(500)).await.is_err(), "two places in line for one attempt");

    drop((unacknowledged, still_unheard));
    let held = soon("granted", PROMPTLY * 2, waiting).await.unwrap().unwrap();
    let truth = ensemble.client().await.unwrap();
    assert_eq!(nodes(&truth, "behind").await.len(), 1, "a place that nobody knows");
    held.release().await.unwrap();
    eventually("nothing is left", PROMPTLY, async || nodes(&truth, "behind").await.is_empty()).await;
}
