//! Many waiters that give up together while another one goes on waiting.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{LeaseOptions, RedisConfig, RedisLocks};
use tokio::time::sleep;

use super::table::{Bar, Table};
use super::truth::{Truth, server};
use crate::{Bench, Outcome};

const FEW: usize = 50;
/// The waiters of one client where there are many clients; but also as many clients as waiters.
const EACH: usize = 10;
/// All of them have to be there by then; it grows with their number.
const PATIENCE: Duration = Duration::from_secs(3);

/// The slowest scripts in ms: while they leave, and the signs of life of the one that stays.
struct Seen(f64, f64);

pub(super) async fn run(bench: &Bench) -> Outcome {
    let many = if bench.is_quick { 500 } else { 5_000 };
    let table = Table::begin(&format!("{many} waiters give up together"), "50 waiters of one client");
    let few = leave(1, FEW).await?;
    for clients in [1, many / EACH, many] {
        let seen = leave(clients, many / clients).await?;
        let of = if clients == 1 { "of one client".to_owned() } else { format!("of {clients} clients") };
        table.row(&format!("slowest clean-up, ms, {of}"), seen.0, Some(few.0), Bar::None);
        table.row(&format!("slowest heartbeat afterwards, ms, {of}"), seen.1, Some(few.1), Bar::AtMost(0.2));
    }
    Ok(())
}

async fn leave(clients: usize, each: usize) -> Outcome<Seen> {
    const LOCK: &str = "bench:mutex:{left}";
    let server = server().await?;
    let truth = Truth::of(&server)?;
    let connect = || RedisLocks::connect_with(RedisConfig::new(server.url()).with_prefix("bench"));
    let (holder, stays) = (connect().await?, connect().await?);
    let lease = LeaseOptions::new(Duration::from_secs(300)).with_auto_renew(false);
    let guard = holder.mutex("left").with_lease(lease).lock().await?;
    let mutex = stays.mutex("left").with_lease(lease);
    let staying = tokio::spawn(async move { mutex.lock().await.map(drop) });
    truth.until_waiting(LOCK, 1).await?;

    let mut leavers = Vec::new();
    for _ in 0..clients {
        leavers.push(connect().await?);
    }
    let end = Instant::now() + PATIENCE + Duration::from_millis(u64::try_from(clients * each)?);
    let leaving: Vec<_> = leavers
        .iter()
        .flat_map(|client| (0..each).map(|_| client.mutex("left")))
        .map(|mutex| tokio::spawn(async move { mutex.try_lock_for(end.duration_since(Instant::now())).await }))
        .collect();
    truth.until_waiting(LOCK, clients * each + 1).await?;
    truth.watch().await?;
    for outcome in join_all(leaving).await {
        if outcome??.is_some() {
            return Err("a lock that is held was granted".into());
        }
    }
    truth.until_waiting(LOCK, 1).await?;
    let leave = truth.slowest().await?;
    truth.watch().await?;
    // Signs of life come about once a second.
    sleep(Duration::from_secs(4)).await;
    let heartbeat = truth.slowest().await?;
    guard.release().await?;
    staying.await??;
    Ok(Seen(leave, heartbeat))
}
