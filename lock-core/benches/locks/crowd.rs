//! Crowds at one lock in memory: holders side by side, and waiters that give up. What one costs is not to depend on their number.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_core::MemoryLocks;

use crate::Outcome;

pub(crate) async fn run(crowds: &[u32]) -> Outcome {
    println!("\n## Crowds at one lock in memory, µs for each of them\n");
    println!(
        "| how many | permits taken and released | readers in and out | waiters that come and give up |\n|---|---|---|---|"
    );
    for many in crowds {
        let (permits, readers, waiters) = (permits(*many).await?, readers(*many).await?, waiters(*many).await?);
        println!("| {many} | {permits:.1} | {readers:.1} | {waiters:.1} |");
    }
    Ok(())
}

async fn permits(many: u32) -> Outcome<f64> {
    let semaphore = MemoryLocks::new().semaphore("crowd", many);
    let (mut held, began) = (Vec::new(), Instant::now());
    for _ in 0..many {
        held.push(semaphore.acquire().await?);
    }
    for permit in held {
        permit.release().await?;
    }
    Ok(each(began, many))
}

async fn readers(many: u32) -> Outcome<f64> {
    let lock = MemoryLocks::new().rwlock("crowd");
    let (mut held, began) = (Vec::new(), Instant::now());
    for _ in 0..many {
        held.push(lock.read().await?);
    }
    for guard in held {
        guard.release().await?;
    }
    Ok(each(began, many))
}

async fn waiters(many: u32) -> Outcome<f64> {
    let locks = MemoryLocks::new();
    let mutex = locks.mutex("crowd");
    let held = mutex.lock().await?;
    let (mut waiting, began) = (Vec::new(), Instant::now());
    for _ in 0..many {
        let mut wait = Box::pin(async { mutex.lock().await.map(drop) });
        if wait.as_mut().now_or_never().is_some() {
            return Err("a held lock was granted".into());
        }
        waiting.push(wait);
    }
    drop(waiting);
    // The cancellations are done in the background.
    while mutex.inspect().await?.waiter_count() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    held.release().await?;
    Ok(each(began, many))
}

fn each(began: Instant, many: u32) -> f64 {
    began.elapsed().as_secs_f64() * 1e6 / f64::from(many)
}
