//! Lock and release of free locks, each task its own name, against the bare pair and the bare pipelines.

use std::time::Duration;

use bench_support::{Cycle, Outcome, Plan, Series, for_a_while};
use lock_memcached::{Mutex, RestartPolicy};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use memcache::exp::AsyncMetaClient;

use crate::{Bench, bare, locks};

/// The round trip to a server that is far away.
const FAR: Duration = Duration::from_millis(20);

const NAMES: [&str; 4] = ["claim + delete", "the same commands, bare", "lock + release", "lock + release, guard off"];

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release\n");
    let bars = |tasks| match tasks {
        1 => ["", "", "latency ≤ 1.3 of the pair, ≤ 1.15 of the same", ""],
        _ => ["", "", "rate ≥ 0.55 of the pair, ≥ 0.9 of the same", "rate ≥ 0.8 of the pair"],
    };
    table(&bench.plan, bench.server.address(), bars).await
}

/// Measures the same at a server that is far away, over a link that all variants share.
pub(crate) async fn far(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release, round trip {FAR:?}\n");
    let link = Proxy::to(bench.server.address(), Protocol::Memcached)?;
    let delay = Toxic::Delay { by: FAR / 2, jitter: Duration::ZERO };
    let _delayed = link.inject(LinkFault::new(delay, Direction::Both));
    let bars = |tasks| match tasks {
        1 => ["", "", "latency ≤ 1.02 of the pair, p99 ≤ 1.10", ""],
        _ => ["", "", "latency ≤ 1.05 of the pair, p99 ≤ 1.10", ""],
    };
    table(&bench.plan, &link.address().to_string(), bars).await
}

async fn table(plan: &Plan, address: &str, bars: impl Fn(usize) -> [&'static str; 4]) -> Outcome {
    println!(
        "| tasks | variant | median µs | p99 µs | cycles/s | latency ÷ pair | p99 ÷ pair | latency ÷ same | rate ÷ pair | rate ÷ same | bar |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for tasks in [1, 64] {
        let all = measure(plan, address, tasks).await?;
        let [pair, same, ..] = &all;
        for ((name, series), bar) in NAMES.iter().zip(&all).zip(bars(tasks)) {
            println!(
                "| {tasks} | {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {bar} |",
                series.micros(0.5),
                series.micros(0.99),
                series.per_second(),
                series.micros(0.5) / pair.micros(0.5),
                series.micros(0.99) / pair.micros(0.99),
                series.micros(0.5) / same.micros(0.5),
                series.per_second() / pair.per_second(),
                series.per_second() / same.per_second(),
            );
        }
    }
    Ok(())
}

async fn measure(plan: &Plan, address: &str, tasks: usize) -> Outcome<[Series; 4]> {
    let (client, url) = (bare::client_to(address).await?, format!("memcached://{address}"));
    let (locks, unguarded) = (locks(&url, RestartPolicy::Quarantine).await?, locks(&url, RestartPolicy::Off).await?);
    let mut all = [Series::new()?, Series::new()?, Series::new()?, Series::new()?];
    // The first round fills the pools.
    for round in 0..=plan.rounds {
        let mut now = [Series::new()?, Series::new()?, Series::new()?, Series::new()?];
        let [pair, same, ours, off] = &mut now;
        let time = plan.round;
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
