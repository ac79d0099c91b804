//! The cost of 1,000 waiters on one name to the server while nothing happens, beside the same clients without waiters.

use std::time::{Duration, Instant};

use lock_zk::LeaseOptions;

use crate::{Bench, Outcome};

const WAITERS: usize = 1000;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Idle waiters of one process on one name\n");
    println!("| waiters | requests/s | bar |\n|---|---|---|");
    let (holder, locks) = (bench.locks().await?, bench.locks().await?);
    let lease = LeaseOptions::new(Duration::from_secs(600)).with_auto_renew(false);
    let guard = holder.mutex("idle").with_lease(lease).lock().await?;
    println!("| 0 | {:.2} | pings and beats of two sessions, renewals of one lock |", per_second(bench).await?);
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mutex = locks.mutex("idle");
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    while holder.mutex("idle").inspect().await?.waiter_count() < WAITERS as u64 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("| {WAITERS} | {:.2} | as without waiters |", per_second(bench).await?);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(guard.release().await?)
}

async fn per_second(bench: &Bench) -> Outcome<f64> {
    let (before, began) = (bench.requests().await?, Instant::now());
    tokio::time::sleep(bench.round * bench.rounds).await;
    // Without the question itself.
    let requests = bench.requests().await? - before - 1;
    Ok(requests as f64 / began.elapsed().as_secs_f64())
}
