//! Servers that come late. With `zookeeper-async`, which asks over connections of its own first, no fault meets the session alone.

use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_zk::ZkConfig;

use crate::support::{PROMPTLY, connected, eventually, link, ms, over, server, soon};

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
