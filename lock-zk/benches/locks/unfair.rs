//! A mutex without a queue beside one with it: turns, requests, and shares, of one client and of several on one name.

use std::time::{Duration, Instant};

use bench_support::jain;
use lock_zk::ZkLocks;

use crate::{Bench, Outcome, config};

/// The numbers of clients, each with a session of its own and one task.
const CLIENTS: [usize; 4] = [1, 2, 4, 8];

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Mutex with and without a queue, clients with one task each\n");
    println!("| clients | mutex | turns/s | requests per turn | Jain |\n|---|---|---|---|---|");
    for clients in CLIENTS {
        for unfair in [false, true] {
            measure(bench, clients, unfair).await?;
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, clients: usize, unfair: bool) -> Outcome {
    let mut all = Vec::new();
    for _ in 0..clients {
        let mut config = config(bench.server.url(), Duration::from_secs(10));
        config.unfair_mutex = unfair;
        all.push(ZkLocks::connect_with(config).await?);
    }
    let (before, began) = (bench.requests().await?, Instant::now());
    let end = began + bench.round * bench.rounds;
    let tasks: Vec<_> = all.iter().cloned().map(|locks| tokio::spawn(turns(locks, clients, end))).collect();
    let mut shares = Vec::new();
    for task in tasks {
        shares.push(task.await??);
    }
    let (turns, time) = (shares.iter().sum::<u64>() as f64, began.elapsed());
    let (rate, requests) = (turns / time.as_secs_f64(), (bench.requests().await? - before) as f64 / turns);
    let which = if unfair { "without a queue" } else { "with a queue" };
    println!("| {clients} | {which} | {rate:.0} | {requests:.2} | {:.3} |", jain(&shares));
    Ok(())
}

/// Takes turns until then; how many.
async fn turns(locks: ZkLocks, clients: usize, end: Instant) -> Outcome<u64> {
    let (mutex, mut count) = (locks.mutex(format!("unfair/{clients}")), 0);
    while Instant::now() < end {
        // Who is alone at the end goes home.
        let Some(held) = mutex.try_lock_for(end.saturating_duration_since(Instant::now())).await? else { break };
        held.release().await?;
        count += 1;
    }
    Ok(count)
}
