//! The way through a cluster against the way straight to one of its nodes, free locks on that node; and how long a failover
//! keeps 1,000 tasks waiting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bench_support::{Series, for_a_while};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::HarnessError;
use lock_testkit_servers::redis::{ClusterDeployment, RedisServer};
use tokio::task::JoinHandle;

use crate::ours::Ours;
use crate::{Bench, Outcome};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## The way through a cluster\n");
    println!("| tasks | variant | median µs | cycles/s | latency ÷ straight |");
    println!("|---|---|---|---|---|");
    let cluster = ClusterDeployment::start().await?;
    let through = RedisLocks::connect_with(RedisConfig::new(cluster.url()).with_prefix("bench")).await?;
    let slot = cluster.slot_of("bench:mutex:{task 0}").await.map_err(words)?;
    let node = cluster.master_of(slot).await.map_err(words)?;
    let direct = RedisLocks::connect_with(RedisConfig::new(node.url()).with_prefix("bench")).await?;
    for tasks in [1, 64] {
        let names = names_on(&cluster, node, tasks).await?;
        let (mut one, mut many) = (Series::new()?, Series::new()?);
        for _ in 0..bench.rounds {
            round(bench, &direct, &names, &mut one).await?;
            round(bench, &through, &names, &mut many).await?;
        }
        for (name, series) in [("straight to the node", &one), ("through the cluster", &many)] {
            let ratio = series.micros(0.5) / one.micros(0.5);
            println!("| {tasks} | {name} | {:.1} | {:.0} | {ratio:.2} |", series.micros(0.5), series.per_second());
        }
    }
    drop((through, direct));
    failovers(bench, &cluster).await
}

fn words(error: HarnessError) -> String {
    error.to_string()
}

/// Names whose locks are on one node.
async fn names_on(cluster: &ClusterDeployment, node: &RedisServer, count: usize) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for number in 0_u64.. {
        let name = format!("task {number}");
        let slot = cluster.slot_of(&format!("bench:mutex:{{{name}}}")).await.map_err(words)?;
        if cluster.master_of(slot).await.map_err(words)?.url() == node.url() {
            names.push(name);
        }
        if names.len() == count {
            break;
        }
    }
    Ok(names)
}

const TASKS: usize = 1000;

async fn failovers(bench: &Bench, cluster: &ClusterDeployment) -> Outcome {
    println!("\n## Failover of a cluster's master under {TASKS} tasks\n");
    println!("| what | new master after ms | longest time without a grant ms | grants | errors | hung calls |");
    println!("|---|---|---|---|---|---|");
    for planned in [true, false] {
        let slot = cluster.slot_of("bench:mutex:{task 0}").await.map_err(words)?;
        let master = cluster.master_of(slot).await.map_err(words)?;
        let names = names_on(cluster, master, TASKS).await?;
        let locks = RedisLocks::connect_with(RedisConfig::new(cluster.url()).with_prefix("bench")).await?;
        let load = Load::start(&locks, names, bench.round * 12);
        tokio::time::sleep(bench.round).await;
        let began = Instant::now();
        if planned {
            cluster.fail_over(slot).await.map_err(words)?;
        } else {
            master.kill().map_err(words)?;
            cluster.until_another_master(slot, master).await.map_err(words)?;
        }
        let elected = began.elapsed();
        let Load { tally, running } = load;
        let mut hung = 0;
        for task in running {
            hung += usize::from(tokio::time::timeout(bench.round * 12 + Duration::from_secs(20), task).await.is_err());
        }
        let Tally { gap, grants, errors, .. } = *tally.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "| {} | {} | {} | {} | {} | {hung} |",
            if planned { "planned" } else { "kill -9" },
            elected.as_millis(),
            gap.as_millis(),
            grants,
            errors,
        );
        if !planned {
            master.restart().await.map_err(words)?;
            cluster.until_ready().await.map_err(words)?;
        }
    }
    Ok(())
}

/// Tasks that lock and release, each its own name.
struct Load {
    tally: Arc<Mutex<Tally>>,
    running: Vec<JoinHandle<()>>,
}

struct Tally {
    last: Instant,
    gap: Duration,
    grants: u64,
    errors: u64,
}

impl Load {
    fn start(locks: &RedisLocks, names: Vec<String>, time: Duration) -> Self {
        let tally = Tally { last: Instant::now(), gap: Duration::ZERO, grants: 0, errors: 0 };
        let (tally, end) = (Arc::new(Mutex::new(tally)), Instant::now() + time);
        let task = |name: String| {
            let (mutex, tally) = (locks.mutex(name), tally.clone());
            tokio::spawn(async move {
                while Instant::now() < end {
                    let outcome = mutex.lock().await;
                    tally.lock().unwrap_or_else(PoisonError::into_inner).count(outcome.is_ok());
                    if let Ok(guard) = outcome {
                        // A release without an answer is finished in the background.
                        let _ = guard.release().await;
                    }
                }
            })
        };
        let running = names.into_iter().map(task).collect();
        Self { tally, running }
    }
}

impl Tally {
    fn count(&mut self, granted: bool) {
        if !granted {
            self.errors += 1;
            return;
        }
        self.gap = self.gap.max(self.last.elapsed());
        self.last = Instant::now();
        self.grants += 1;
    }
}

/// Every task its own name.
async fn round(bench: &Bench, locks: &RedisLocks, names: &[String], series: &mut Series) -> Outcome {
    for_a_while(names.len(), bench.round, series, |task| Ours::Mutex(locks.mutex(&*names[task]))).await
}
