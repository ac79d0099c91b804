//! A subscriber of `tracing` that panics. It is told by the tasks that keep the session, which go on all the same.
//!
//! Tests of one thread each: the subscriber of a thread hears what is told there.

use lock_testkit::MistakenSubscriber;
use lock_testkit::proxy::{Direction, LinkFault, Proxy, Toxic};
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use lock_zk::{SessionState, ZkLocks};

use crate::support::{LASTING, PROMPTLY, SESSION, client, eventually, lease, link, over, server, soon};

/// A server, a link to it, and a client over that.
async fn far() -> Option<(ZooKeeperServer, Proxy, ZkLocks)> {
    let server = server().await?;
    let link = link(&server);
    let locks = client(&over([&link]), SESSION).await;
    Some((server, link, locks))
}

#[tokio::test]
async fn a_subscriber_that_panics_at_whatever_is_said_of_sessions_ends_no_client() {
    let Some((server, link, locks)) = far().await else { return };
    let holder = client(server.url(), LASTING).await;
    let held = holder.mutex("panics").lock().await.unwrap();
    let lock = locks.mutex("panics");
    let waiting = tokio::spawn(async move { lock.lock().await });
    eventually("a watch", PROMPTLY, async || server.figure("zk_watch_count").await.unwrap() == 1).await;
    let mistaken = MistakenSubscriber::at("lock_zk");
    // Suspended, lost, and refused: each is told.
    let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let reset = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    eventually("the session is lost", PROMPTLY, async || locks.session_state() == SessionState::Lost).await;
    eventually("the subscriber has panicked", PROMPTLY, async || mistaken.panics() >= 3).await;
    reset.heal().unwrap();
    refused.heal().unwrap();
    eventually("connected", PROMPTLY, async || locks.session_state() == SessionState::Connected).await;
    held.release().await.unwrap();
    soon("the waiter is granted", PROMPTLY, waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_subscriber_that_panics_at_a_suspension_costs_no_lock() {
    let Some((server, link, _)) = far().await else { return };
    let locks = client(&over([&link]), LASTING).await;
    let held = locks.mutex("kept").with_ttl(LASTING).lock().await.unwrap();
    let mistaken = MistakenSubscriber::at("lock_zk");
    let reset = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    eventually("the subscriber has panicked", PROMPTLY, async || mistaken.panics() >= 1).await;
    reset.heal().unwrap();
    eventually("connected", PROMPTLY, async || locks.session_state() == SessionState::Connected).await;
    assert!(held.is_held());
    held.release().await.unwrap();
    drop(server);
}

#[tokio::test]
async fn a_subscriber_that_panics_at_what_the_client_crate_says_costs_the_session_at_most() {
    let Some((_server, link, locks)) = far().await else { return };
    let held = locks.mutex("panics").with_lease(lease()).lock().await.unwrap();
    let mistaken = MistakenSubscriber::at("zookeeper");
    let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    let reset = link.inject(LinkFault::new(Toxic::Reset, Direction::Both));
    soon("the holder is told", PROMPTLY, held.lost()).await;
    let so_far = mistaken.panics();
    let at_tries = so_far.max(1) + crate::TOLD_WHILE_OPENED;
    eventually("the subscriber has panicked", PROMPTLY, async || mistaken.panics() >= at_tries).await;
    reset.heal().unwrap();
    refused.heal().unwrap();
    drop((held, mistaken));
    let again = soon("the client takes it again", PROMPTLY * 2, locks.mutex("panics").lock()).await.unwrap();
    again.release().await.unwrap();
}
