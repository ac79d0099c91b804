//! Servers that come late. With `zookeeper-async`, which asks over connections of its own first, no fault meets the session alone.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_zk::{ErrorKind, ZkConfig};

use crate::connect;
use crate::support::{PROMPTLY, connected, eventually, fails, link, ms, over, server, soon};

/// It was asked for when no server was there, and no other one is opened after it.
#[test]
fn a_session_that_was_opened_late_is_better_than_none() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let config = ZkConfig::new(over([&link])).with_session_timeout(ms(6000)).with_tick_time(ms(200));
        let refuse = || link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
        let refused = refuse();
        let comes = async {
            tokio::time::sleep(ms(2500)).await;
            refused.heal().unwrap();
            eventually("a connection", PROMPTLY, async || link.open_connections() > 0).await;
            refuse()
        };
        let (locks, refused) = tokio::join!(connected(config), comes);
        refused.heal().unwrap();
        soon("the lock", PROMPTLY, locks.mutex("late").lock()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn of_servers_that_answer_late_two_sessions_are_opened_at_most() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let slow = link.inject(LinkFault::new(Toxic::Delay { by: ms(700), jitter: ms(0) }, Direction::ToClient));
        let config = ZkConfig::new(over([&link])).with_session_timeout(ms(4000)).with_tick_time(ms(200));
        let locks = Box::pin(connect(config)).await.unwrap();
        assert!(link.connections() <= 2, "{} sessions were opened", link.connections());
        slow.heal().unwrap();
        soon("the lock", PROMPTLY, locks.mutex("slow").lock()).await.unwrap().release().await.unwrap();
    });
}

#[test]
fn connecting_to_a_silent_server_ends_when_its_text_says() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let _silent = link.inject(LinkFault::new(Toxic::Hold, Direction::Both));
        let (timeout, began) = (ms(3100), Instant::now());
        let config = ZkConfig::new(over([&link])).with_session_timeout(timeout).with_tick_time(ms(200));
        fails(Box::pin(connect(config)).await, ErrorKind::Unavailable);
        assert!(began.elapsed() < timeout + ms(700), "{:?}", began.elapsed());
    });
}

#[test]
fn a_server_that_comes_at_the_last_moment_is_tried() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let _refused = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
        let (timeout, began) = (ms(2000), Instant::now());
        let config = ZkConfig::new(over([&link])).with_session_timeout(timeout).with_tick_time(ms(200));
        fails(Box::pin(connect(config)).await, ErrorKind::Unavailable);
        assert!(began.elapsed() >= timeout - ms(200), "given up after {:?}", began.elapsed());
    });
}

/// No route leads to a broadcast address by TCP: the system refuses at once, as it does where there is no network.
#[test]
fn connecting_without_a_network_ends_and_leaves_the_thread_to_others() {
    let (told, outcome) = mpsc::channel();
    // Not joined: a call that does not end would hold the test up for ever.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = ZkConfig::new("zk://255.255.255.255:2181").with_session_timeout(ms(1000)).with_tick_time(ms(200));
        told.send(runtime.block_on(connect(config)).map(drop)).unwrap();
    });
    fails(outcome.recv_timeout(PROMPTLY).unwrap(), ErrorKind::Unavailable);
}
