//! The cost of waiters at the server while nothing happens: commands per second of one process on one name.

use std::time::{Duration, Instant};

use lock_redis::LeaseOptions;

use crate::{Bench, Outcome, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Idle waiters of one process on one name\n");
    println!("| waiters | commands/s |");
    println!("|---|---|");
    let mut connection = bare::connection(bench).await?;
    for waiters in [50, 1000] {
        let holder = bench.locks().await?;
        let lease = LeaseOptions::new(Duration::from_secs(120)).with_auto_renew(false);
        let guard = holder.mutex("idle").with_lease(lease).lock().await?;
        let locks = bench.locks().await?;
        let waiting: Vec<_> = (0..waiters)
            .map(|_| {
                let mutex = locks.mutex("idle");
                tokio::spawn(async move { mutex.lock().await })
            })
            .collect();
        while holder.mutex("idle").inspect().await?.waiter_count() < waiters as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (before, start) = (bare::client_commands(&mut connection).await?, Instant::now());
        tokio::time::sleep(bench.round * bench.rounds * 2).await;
        let commands = bare::client_commands(&mut connection).await? - before;
        println!("| {waiters} | {:.2} |", commands as f64 / start.elapsed().as_secs_f64());
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        guard.release().await?;
    }
    Ok(())
}
