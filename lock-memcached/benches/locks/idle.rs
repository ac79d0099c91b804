//! The cost at the server of 50 waiters of one process on one name while nothing happens, beside the same clients without
//! waiters.

use std::time::{Duration, Instant};

use bench_support::{Outcome, cpu_seconds};
use lock_memcached::LeaseOptions;

use crate::{Bench, LEASE};

const WAITERS: usize = 50;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Idle waiters of one process on one name\n");
    println!("| waiters | reads/s | writes/s | server % of a core | bar |\n|---|---|---|---|---|");
    let (holder, locks) = (bench.locks().await?, bench.locks().await?);
    let lease = LeaseOptions::new(LEASE);
    let guard = holder.mutex("idle").with_lease(lease).lock().await?;
    row(bench, 0, "the renewals of one lock").await?;
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mutex = locks.mutex("idle");
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    // Their first pauses are short.
    tokio::time::sleep(Duration::from_secs(1)).await;
    row(bench, WAITERS, "≤ 50 reads more, and no writes").await?;
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(guard.release().await?)
}

async fn row(bench: &Bench, waiters: usize, bar: &str) -> Outcome {
    let pid = bench.server.pid().ok_or("no server of our own")?;
    let (gets, writes, cpu) = (bench.figure("cmd_get").await?, writes(bench).await?, cpu_seconds(pid)?);
    let began = Instant::now();
    tokio::time::sleep(bench.plan.round * bench.plan.rounds).await;
    let rate = |count: u64| count as f64 / began.elapsed().as_secs_f64();
    println!(
        "| {waiters} | {:.1} | {:.1} | {:.2} | {bar} |",
        rate(bench.figure("cmd_get").await? - gets),
        rate(self::writes(bench).await? - writes),
        (cpu_seconds(pid)? - cpu) / began.elapsed().as_secs_f64() * 100.0
    );
    Ok(())
}

/// Claims and renewals.
async fn writes(bench: &Bench) -> Outcome<u64> {
    Ok(bench.figure("incr_hits").await? + bench.figure("incr_misses").await?)
}
