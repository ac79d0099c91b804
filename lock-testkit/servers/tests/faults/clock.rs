//! Steps of a real server's wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

use lock_testkit::faults::ClockFault;
use lock_testkit::testing::PROMPTLY;
use lock_testkit_servers::WallClock;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};

use crate::store::{found, server_with};

fn seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// The server's clock is ahead of ours by so many seconds, at some time between the question and its answer.
async fn is_ahead(server: &RedisServer, by: i64) {
    let asked = seconds();
    let theirs = server.client().unwrap().command(&["TIME"]).await.unwrap().into_parts();
    let theirs = theirs[0].as_text().unwrap().parse::<i64>().unwrap();
    assert!((asked + by - 1..=seconds() + by + 1).contains(&theirs), "{theirs}, asked at {asked}");
}

async fn left(server: &RedisServer, key: &str) -> i64 {
    server.client().unwrap().command(&["PTTL", key]).await.unwrap().as_int().unwrap()
}

#[tokio::test]
async fn a_server_s_clock_is_stepped_while_it_runs_and_keys_expire_by_it() {
    let Some(clock) = found(WallClock::new()) else { return };
    let Some(server) = server_with(&RedisOptions::new().with_clock(&clock)).await else { return };
    let redis = server.client().unwrap();
    is_ahead(&server, 0).await;
    redis.command(&["SET", "short", "", "PX", "10000"]).await.unwrap();
    let forward = clock.inject(ClockFault::ahead_by_ms(30_000)).unwrap();
    forward.applied(PROMPTLY).await.unwrap();
    is_ahead(&server, 30).await;
    assert_eq!(left(&server, "short").await, -2, "it has not expired");
    assert!(forward.heal().unwrap().seen[0].contains("30000 ms ahead"));
    is_ahead(&server, 0).await;

    redis.command(&["SET", "long", "", "PX", "10000"]).await.unwrap();
    let back = clock.inject(ClockFault::ahead_by_ms(-60_000)).unwrap();
    back.applied(PROMPTLY).await.unwrap();
    is_ahead(&server, -60).await;
    assert!(left(&server, "long").await > 60_000);
}

#[tokio::test]
async fn a_step_that_nobody_reads_is_unproven() {
    let Some(clock) = found(WallClock::new()) else { return };
    assert!(clock.inject(ClockFault::ahead_by_ms(1000)).unwrap().heal().is_err());
}
