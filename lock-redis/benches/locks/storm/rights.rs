//! Reconnecting again and again as a user who may not kill connections.

use std::time::{Duration, Instant};

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};

use super::table::{Bar, Table};
use super::truth::{Truth, server};
use crate::{Bench, Outcome};

const ROUND_TRIP: Duration = Duration::from_millis(10);
/// The first so many reconnects are compared with the last.
const SOME: usize = 5;
/// A connection that lasts less than a second is replaced after a pause.
const LASTS: Duration = Duration::from_millis(1100);

pub(super) async fn run(bench: &Bench) -> Outcome {
    let count = if bench.is_quick { 2 * SOME } else { 100 };
    let table = Table::begin(&format!("{count} reconnects without the right to CLIENT KILL"), "the first ones");
    let server = server().await?;
    let truth = Truth::of(&server)?;
    truth.run(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-client|kill"]).await?;
    let link = Proxy::to(server.address(), Protocol::Resp)?;
    let delay = Toxic::Delay { by: ROUND_TRIP / 2, jitter: Duration::ZERO };
    let _slow = link.inject(LinkFault::new(delay, Direction::Both));
    let url = format!("redis://u:p@{}", link.address());
    let locks = RedisLocks::connect_with(RedisConfig::new(url).with_prefix("bench")).await?;
    locks.mutex("again").lock().await?.release().await?;
    let mut took = Vec::new();
    for _ in 0..count {
        tokio::time::sleep(LASTS).await;
        truth.run(&["CLIENT", "KILL", "TYPE", "normal", "USER", "u"]).await?;
        let start = Instant::now();
        loop {
            if let Ok(Some(guard)) = locks.mutex("again").try_lock().await {
                // Only the grant counts.
                took.push(start.elapsed().as_secs_f64() / ROUND_TRIP.as_secs_f64());
                let _ = guard.release().await;
                break;
            }
            if start.elapsed() > Duration::from_secs(20) {
                return Err("no connection for 20 s".into());
            }
        }
    }
    let (first, last) = (median(&took[..SOME]), median(&took[count - SOME..]));
    table.row("the last ones, in round trips", last, Some(first), Bar::AtMost(first + 2.0));
    Ok(())
}

fn median(some: &[f64]) -> f64 {
    let mut some = some.to_vec();
    some.sort_by(f64::total_cmp);
    some[some.len() / 2]
}
