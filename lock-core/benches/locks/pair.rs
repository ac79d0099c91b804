//! Lock and release of free locks, each task its own name, beside a mutex of tokio's. Every pair is timed, as in the benchmarks of
//! the other backends, which is most of the time of tokio's.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lock_core::{Error, MemoryLocks};

use crate::Outcome;

/// The pairs after which a task lets another one run.
const BLOCK: usize = 256;

/// Rounds in which the variants take turns; the table has their median.
const ROUNDS: usize = 5;

pub(crate) async fn run(round: Duration) -> Outcome {
    println!("\n## Lock + release in memory\n");
    println!("| tasks | tokio's mutex, pairs/s | memory backend, pairs/s | ratio | bar |\n|---|---|---|---|---|");
    for tasks in [1, 64] {
        let locks = MemoryLocks::new();
        let (mut tokios, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            tokios.push(rate(tasks, round, |_| Pair::Tokio(tokio::sync::Mutex::default())).await?);
            ours.push(rate(tasks, round, |task| Pair::Ours(locks.mutex(format!("task {task}")))).await?);
        }
        let (tokio, ours) = (median(&mut tokios), median(&mut ours));
        println!(
            "| {tasks} | {tokio:.0} | {ours:.0} | {:.2} | {} |",
            ours / tokio,
            if tasks == 1 { "≥ 0.29" } else { "" }
        );
    }
    Ok(())
}

/// One task's lock.
enum Pair {
    Tokio(tokio::sync::Mutex<()>),
    Ours(lock_core::Mutex),
}

impl Pair {
    async fn go(&self) -> Result<(), Error> {
        match self {
            Self::Tokio(mutex) => {
                drop(std::hint::black_box(mutex.lock().await));
                Ok(())
            }
            Self::Ours(mutex) => mutex.lock().await?.release().await,
        }
    }

    /// The times of this task's pairs until then.
    async fn go_until(self, end: Instant) -> Outcome<Histogram<u64>> {
        let mut times = Histogram::new(3)?;
        loop {
            for _ in 0..BLOCK {
                let began = Instant::now();
                if began >= end {
                    return Ok(times);
                }
                self.go().await?;
                times.record(u64::try_from(began.elapsed().as_nanos())?)?;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// The pairs that so many tasks do in a second.
async fn rate(tasks: u32, round: Duration, pair: impl Fn(u32) -> Pair) -> Outcome<f64> {
    let began = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pair(task).go_until(began + round))).collect();
    let mut all = Histogram::<u64>::new(3)?;
    for task in running {
        all.add(task.await??)?;
    }
    Ok(all.len() as f64 / began.elapsed().as_secs_f64())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
