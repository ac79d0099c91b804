//! Lock and release of free locks, each task its own name, against the bare pair and the bare pipelines.

use bench_support::{Cycle, Outcome, Series, for_a_while};
use lock_memcached::Mutex;
use memcache::exp::AsyncMetaClient;

use crate::{Bench, bare};

const NAMES: [&str; 4] = ["claim + delete", "the same commands, bare", "lock + release", "lock + release, guard off"];

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release\n");
    println!(
        "| tasks | variant | median µs | p99 µs | cycles/s | latency ÷ pair | latency ÷ same | rate ÷ pair | rate ÷ same | bar |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for tasks in [1, 64] {
        let all = measure(bench, tasks).await?;
        let [pair, same, ..] = &all;
        let bars = match tasks {
            1 => ["", "", "latency ≤ 1.3 of the pair, ≤ 1.15 of the same", ""],
            _ => ["", "", "rate ≥ 0.55 of the pair, ≥ 0.9 of the same", "rate ≥ 0.8 of the pair"],
        };
        for ((name, series), bar) in NAMES.iter().zip(&all).zip(bars) {
            println!(
                "| {tasks} | {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {bar} |",
                series.micros(0.5),
                series.micros(0.99),
                series.per_second(),
                series.micros(0.5) / pair.micros(0.5),
                series.micros(0.5) / same.micros(0.5),
                series.per_second() / pair.per_second(),
                series.per_second() / same.per_second(),
            );
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, tasks: usize) -> Outcome<[Series; 4]> {
    let client = bare::client(bench).await?;
    let (locks, unguarded) = (bench.locks().await?, bench.unguarded().await?);
    let mut all = [Series::new()?, Series::new()?, Series::new()?, Series::new()?];
    // The first round fills the pools.
    for round in 0..=bench.plan.rounds {
        let mut now = [Series::new()?, Series::new()?, Series::new()?, Series::new()?];
        let [pair, same, ours, off] = &mut now;
        let time = bench.plan.round;
        let key = |task| format!("bench:mutex:bare {task:02}").replace(' ', "%20");
        for_a_while(tasks, time, pair, |task| Variant::Pair(client.clone(), key(task))).await?;
        for_a_while(tasks, time, same, |task| Variant::Same(client.clone(), key(task))).await?;
        for_a_while(tasks, time, ours, |task| Variant::Ours(locks.mutex(format!("ours {task:02}")))).await?;
        for_a_while(tasks, time, off, |task| Variant::Ours(unguarded.mutex(format!("ours {task:02}")))).await?;
        if round > 0 {
            for (sum, now) in all.iter_mut().zip(&now) {
                sum.add(now)?;
                sum.time += now.time;
            }
        }
    }
    Ok(all)
}

enum Variant {
    Pair(AsyncMetaClient, String),
    Same(AsyncMetaClient, String),
    Ours(Mutex),
}

impl Cycle for Variant {
    async fn go(&mut self) -> Outcome {
        match self {
            Self::Pair(client, key) => bare::pair(client, key).await,
            Self::Same(client, key) => bare::pipelines(client, key).await,
            Self::Ours(mutex) => Ok(mutex.lock().await?.release().await?),
        }
    }
}
