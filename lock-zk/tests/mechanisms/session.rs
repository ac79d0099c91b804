//! The state that a client tells of its session when it was stolen, or is outlived by its server. (What becomes of locks and waits then is
//! in the suite: C-D01, C-F07, C-F08.) And sessions that are opened late, or too short.

use std::error::Error;
use std::time::Instant;

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_testkit_servers::faults::StoreFault;
use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{ClientOptions, ErrorKind, SessionState, ZkConfig};

use crate::connect;
use crate::support::{
    PROMPTLY, SESSION, client, connected, eventually, fails, lease, link, maker, ms, nodes, over, server, soon, there,
};

#[tokio::test]
async fn a_loss_says_that_the_session_is_gone_and_the_client_is_connected_again() {
    let Some(server) = server().await else { return };
    let (a, truth) = (client(server.url(), SESSION).await, server.client().await.unwrap());
    let held = a.mutex("stolen").lock().await.unwrap();
    let session = maker(&truth, &nodes(&truth, "stolen").await[0]).await;
    StoreFault::StealSession { session }.inject(&server).await.unwrap().heal().unwrap();
    let reason = soon("the holder is told", PROMPTLY, held.lost()).await;
    assert!(crate::SESSION_LOST.contains(&reason), "{reason:?}");
    eventually("connected", PROMPTLY, async || a.session_state() == SessionState::Connected).await;
}

#[test]
fn a_holder_of_a_frozen_server_does_not_believe_longer_than_its_session_lasts() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let a = client(server.url(), SESSION).await;
        let held = a.mutex("frozen").with_lease(lease()).lock().await.unwrap();
        server.stop().unwrap();
        let stopped = Instant::now();
        soon("the holder is told", PROMPTLY, held.lost()).await;
        assert!(!held.is_held() && stopped.elapsed() <= SESSION, "believed for {:?}", stopped.elapsed());
        eventually("the loss of the session is seen", PROMPTLY, async || a.session_state() == SessionState::Lost).await;
        server.cont().unwrap();
        let again = soon("the client takes it again", PROMPTLY, a.mutex("frozen").lock()).await.unwrap();
        again.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_beat_is_agreed_upon_by_a_quorum() {
    let Some(server) = server().await else { return };
    let _idle = client(server.url(), SESSION).await;
    let committed = async || {
        let said = server.ask("srvr").await.unwrap();
        said.lines().find_map(|line| line.strip_prefix("Zxid: ")).unwrap().to_owned()
    };
    let before = committed().await;
    // A refused write is a transaction of its own; a read or a ping is none.
    eventually("an idle client's heartbeat is a transaction", PROMPTLY, async || committed().await != before).await;
}

#[test]
fn a_release_that_nobody_answers_is_unknown_even_when_the_session_is_over_here() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let mut options = ClientOptions::default();
        options.op_timeout = PROMPTLY;
        let config = ZkConfig::new(server.url()).with_session_timeout(SESSION).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        let held = locks.mutex("unanswered").with_lease(lease()).lock().await.unwrap();
        server.stop().unwrap();
        let released = soon("the release", PROMPTLY * 2, held.release()).await;
        assert!(released.as_ref().is_err_and(|error| !error.is_definite()), "{released:?}");
        server.cont().unwrap();
        let truth = server.client().await.unwrap();
        eventually("gone with its session", PROMPTLY, async || nodes(&truth, "unanswered").await.is_empty()).await;
    });
}

/// Its session was asked for when no server was there.
#[test]
fn a_client_whose_server_comes_late_keeps_what_it_is_granted() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
        let config = ZkConfig::new(over([&link])).with_session_timeout(ms(4000)).with_tick_time(ms(2000));
        let comes = async {
            tokio::time::sleep(ms(2500)).await;
            refused.heal().unwrap();
        };
        let (locks, ()) = tokio::join!(connected(config), comes);
        let held = soon("the lock", PROMPTLY, locks.mutex("late").lock()).await.unwrap();
        let granted = Instant::now();
        while granted.elapsed() < ms(3000) {
            assert!(held.is_held(), "lost after {:?}", granted.elapsed());
            tokio::time::sleep(ms(50)).await;
        }
        held.release().await.unwrap();
    });
}

#[tokio::test]
async fn a_session_that_is_granted_for_less_than_can_be_kept_is_refused() {
    let options = ZooKeeperOptions::new().with_setting("maxSessionTimeout", "2000");
    let Some(server) = there(ZooKeeperServer::start_with(&options).await) else { return };
    let refused = soon("a verdict", PROMPTLY, connect(ZkConfig::new(server.url()))).await;
    let error = fails(refused, ErrorKind::InvalidArgument);
    let cause = error.source().unwrap().to_string();
    assert!(cause.contains("a session of 2s") && cause.contains("a tick of 2s"), "{cause}");
}
