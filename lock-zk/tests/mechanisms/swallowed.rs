//! Answers that are lost on a link that is healthy.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_zk::{ClientOptions, SessionState, ZkConfig};

use crate::COSTS_CONNECTION;
use crate::support::{LASTING, PROMPTLY, connected, eventually, link, ms, nodes, over, server, soon};

#[test]
fn a_request_without_an_answer_is_asked_again_when_a_later_one_has_its_own() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let (link, truth) = (link(&server), server.client().await.unwrap());
        let mut options = ClientOptions::default();
        options.op_timeout = PROMPTLY * 2;
        let config = ZkConfig::new(over([&link])).with_session_timeout(LASTING).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        let kept = locks.mutex("kept").lock().await.unwrap();
        // The place in the queue is asked for and, behind it, the listing. Its release is asked for by its name.
        for (nth, name) in [(1, "place"), (2, "listing"), (3, "release")] {
            let directory = format!("/lock/mutex/{name}");
            truth.create_all(&directory).await.unwrap();
            let connections = link.connections();
            let lost = link.inject(LinkFault::new(Toxic::Swallow, Direction::ToClient).on_request(nth, directory));
            let held = soon("the lock", PROMPTLY, locks.mutex(name).try_lock()).await.unwrap().unwrap();
            let released = soon("the release", PROMPTLY, held.release()).await;
            assert!(released.is_ok() || nth == 3, "{released:?}");
            lost.proven().unwrap();
            assert!(nodes(&truth, name).await.is_empty(), "something is left");
            if COSTS_CONNECTION {
                // What is asked on the old one now may be done, and its answer be lost with it.
                eventually("a new connection", PROMPTLY, async || link.connections() > connections).await;
            }
        }
        if COSTS_CONNECTION {
            eventually("connected", PROMPTLY, async || locks.session_state() == SessionState::Connected).await;
        }
        assert_eq!(locks.session_state(), SessionState::Connected);
        // The session is the one of before.
        assert!(kept.is_held());
        kept.release().await.unwrap();
    });
}
