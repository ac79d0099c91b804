//! More requests than a link can carry in a session's time: what keeps the session and its locks does not wait behind them.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use lock_testkit::testing::about_time;
use lock_zk::{ClientOptions, SessionState, ZkConfig};

use crate::support::{PROMPTLY, connected, eventually, link, ms, over, server, soon};

const LASTS: Duration = ms(6000);

/// Two requests each, of 110 bytes and more.
const LOOKS: usize = 1_500;
const BYTES_PER_SECOND: u32 = 40_000;

#[test]
fn a_flood_that_lasts_longer_than_the_session_costs_neither_the_session_nor_a_lock() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        let mut options = ClientOptions::default();
        options.op_timeout = PROMPTLY * 6;
        let config = ZkConfig::new(over([&link])).with_session_timeout(LASTS).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        let kept = locks.mutex("kept").with_ttl(LASTS).lock().await.unwrap();
        let slow = link.inject(LinkFault::new(Toxic::Throttle { rate: BYTES_PER_SECOND }, Direction::ToServer));
        let (began, crowded) = (Instant::now(), locks.mutex("a".repeat(80)));
        let looks = join_all((0..LOOKS).map(|_| crowded.inspect()));
        let looks = soon("every look is answered", PROMPTLY * 6, looks).await;
        assert!(began.elapsed() > LASTS, "no flood: it was over after {:?}", began.elapsed());
        assert!(kept.is_held(), "the lock was lost in a flood of {:?}", began.elapsed());
        assert!(looks.iter().all(Result::is_ok), "{:?}", looks.iter().find(|look| look.is_err()));
        assert_eq!(locks.session_state(), SessionState::Connected);
        slow.heal().unwrap();
        soon("the release", PROMPTLY, kept.release()).await.unwrap();
    });
}

/// Calls that are dropped at once while nothing is answered.
const DROPPED: usize = 2_000;
/// The requests that may be under way, and what goes before all others: heartbeats, and a renewal.
const UNDER_WAY: u64 = 256 + 64;

#[test]
fn calls_that_are_dropped_keep_their_turns_until_they_are_answered() {
    about_time(async || {
        let Some(server) = server().await else { return };
        let link = link(&server);
        // The release of the next one comes behind all that was dropped.
        let options = ClientOptions::default().with_op_timeout(PROMPTLY * 3);
        let config = ZkConfig::new(over([&link])).with_session_timeout(PROMPTLY * 3).with_tick_time(ms(200));
        let locks = connected(config.with_client(options)).await;
        locks.mutex("before").lock().await.unwrap().release().await.unwrap();
        let unanswered = link.inject(LinkFault::new(Toxic::Hold, Direction::ToClient));
        let before = link.requests();
        for number in 0..DROPPED {
            assert!(locks.mutex(format!("dropped/{number}")).try_lock().now_or_never().is_none());
        }
        let sent = || link.requests() - before;
        eventually("forty are sent", PROMPTLY, async || sent() >= 40).await;
        // What is sent is sent at once: this is time for more than may be.
        tokio::time::sleep(ms(500)).await;
        assert!(sent() <= UNDER_WAY, "{} requests are under way", sent());
        unanswered.heal().unwrap();
        let held = soon("the next", PROMPTLY * 3, locks.mutex("after").lock()).await.unwrap();
        held.release().await.unwrap();
    });
}
