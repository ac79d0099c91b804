//! A creation whose answer is lost: the place in the queue is searched for by the attempt's id.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::faults::StoreFault;
use lock_testkit_servers::zookeeper::NodeKind;

use crate::support::{PROMPTLY, client, eventually, link, maker, ms, nodes, over, server, soon};

#[test]
fn a_node_of_another_session_is_no_place_in_line_whatever_id_it_has() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        // zookeeper-async may hang when its connection is reset, and is then given up when its session's lease is over.
        let mutex = client(&over([&link]), ms(4000)).await.mutex("lost");
        truth.create_all("/lock/mutex/lost").await.unwrap();
        let foreign = "/lock/mutex/lost/_c_0f8fad5b-d9cb-469f-a165-70867728950e-lock-";
        let holder = truth.create(foreign, b"", NodeKind::EphemeralSequential).await.unwrap().unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await });
        eventually("two in the queue", PROMPTLY, async || nodes(&truth, "lost").await.len() == 2).await;
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
    });
}
