//! Waiting for a lock of a quorum of three: the cost of idle waiters, and hand-over within one process and between eight.

use std::time::{Duration, Instant};

use bench_support::{Hands, Series, for_a_while, jain};
use lock_redis::{LeaseOptions, QuorumConfig, QuorumLocks};
use lock_testkit::HarnessError;
use lock_testkit_servers::redis::RedisServer;

use crate::ours::Ours;
use crate::storm::judged;
use crate::turns::{Children, PROCESSES, Seen};
use crate::{Bench, Outcome};

pub(crate) async fn connect<'a>(urls: impl Iterator<Item = &'a str>) -> Outcome<QuorumLocks> {
    let config = QuorumConfig::new(urls.map(str::to_owned)).with_prefix("bench");
    Ok(QuorumLocks::connect_with(config.with_young_servers(true)).await?)
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start_own().await?);
    }
    idle(bench, &servers).await?;
    hand_over(bench, &servers).await
}

async fn client(servers: &[RedisServer]) -> Outcome<QuorumLocks> {
    connect(servers.iter().map(RedisServer::url)).await
}

async fn idle(bench: &Bench, servers: &[RedisServer]) -> Outcome {
    println!("\n## Quorum of three: idle waiters of one process on one name\n");
    println!("| waiters | commands/s per server, those of scripts included | ÷ one waiter | bar |");
    println!("|---|---|---|---|");
    let holder = client(servers).await?;
    let lease = LeaseOptions::new(Duration::from_secs(120)).with_auto_renew(false);
    let mut one = None;
    for waiters in [1, 50, 200] {
        let name = format!("idle {waiters}");
        let guard = holder.mutex(name.as_str()).with_lease(lease).lock().await?;
        let locks = client(servers).await?;
        let (tell, mut told) = tokio::sync::mpsc::channel::<()>(1);
        let waiting: Vec<_> = (0..waiters)
            .map(|_| {
                let (mutex, tell) = (locks.mutex(name.as_str()), tell.clone());
                tokio::spawn(async move {
                    let granted = mutex.lock().await;
                    drop(tell);
                    granted
                })
            })
            .collect();
        drop(tell);
        let waiters_key = format!("bench:mutex:{{{name}}}:w");
        while whole(whole(servers[0].client())?.command(&["ZCARD", &waiters_key]).await)?.as_int() != Some(1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (before, start) = (commands(servers).await?, Instant::now());
        tokio::time::sleep(bench.round * bench.rounds * 2).await;
        let seconds = start.elapsed().as_secs_f64() * servers.len() as f64;
        let rate = (commands(servers).await? - before) as f64 / seconds;
        println!("| {waiters} | {rate:.1} | {:.2} | ≤ 60: {} |", rate / *one.get_or_insert(rate), judged(rate <= 60.0));
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        // Closed when every waiter has gone.
        let _: Option<()> = told.recv().await;
        guard.release().await?;
    }
    Ok(())
}

/// The commands that all servers have run, those of scripts included.
async fn commands(servers: &[RedisServer]) -> Outcome<u64> {
    let mut sum = 0;
    for server in servers {
        let stats =
            whole(whole(server.client())?.command(&["INFO", "commandstats"]).await)?.as_text().unwrap_or_default();
        let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
        sum += stats.lines().filter_map(calls).sum::<u64>();
    }
    Ok(sum)
}

async fn hand_over(bench: &Bench, servers: &[RedisServer]) -> Outcome {
    println!("\n## Quorum of three: contended hand-over\n");
    println!("| variant | median µs | p99 µs | turns/s | ÷ one task alone | Jain | bar |");
    println!("|---|---|---|---|---|---|---|");
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let (mut alone, mut tasks, mut eight) = (Series::new()?, Hands::new(16)?, Seen::new("quorum")?);
    for _ in 0..bench.rounds {
        let locks = client(servers).await?;
        for_a_while(1, bench.round, &mut alone, |_| Ours::Mutex(locks.mutex("alone"))).await?;
        tasks.pass(&locks.mutex("hand-over"), bench.round).await?;
        eight.add(&Children::start(&urls.join(","), "quorum").await?.take_turns(bench.round).await?, bench.round);
    }
    let processes = format!("{PROCESSES} processes");
    let at_least = |series: &Series, least: f64| format!("≥ {least:.0} /s: {}", judged(series.per_second() >= least));
    let late = judged(eight.series.micros(0.99) <= 20_000.0);
    for (name, series, shares, bar) in [
        ("one task, lock + release", &alone, &[][..], String::new()),
        ("16 tasks of one process", &tasks.series, &tasks.shares, at_least(&tasks.series, 3000.0)),
        (&processes, &eight.series, &eight.shares, at_least(&eight.series, 654.0) + "; p99 ≤ 20 ms: " + late),
    ] {
        println!(
            "| {name} | {:.1} | {:.1} | {:.0} | {:.2} | {} | {bar} |",
            series.micros(0.5),
            series.micros(0.99),
            series.per_second(),
            series.per_second() / alone.per_second(),
            if shares.is_empty() { String::new() } else { format!("{:.3}", jain(shares)) },
        );
    }
    Ok(())
}

/// The testkit's own failure is a message.
fn whole<T>(outcome: Result<T, HarnessError>) -> Outcome<T> {
    outcome.map_err(|error| error.to_string().into())
}
