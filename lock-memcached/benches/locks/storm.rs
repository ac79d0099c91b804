//! Thousands of locks of one client: leases that end in an outage, and names that are waited for. Each beside a few of them.

use std::time::{Duration, Instant};

use bench_support::{Outcome, Series, cpu_seconds, granted, release_all};
use futures_util::future::join_all;
use lock_memcached::{LeaseOptions, MemcachedLocks, MutexGuard};
use tokio::task::JoinHandle;

use crate::Bench;

/// Leases that end in an outage.
const LEASES: [usize; 2] = [30, 3_000];
const LEASE: Duration = Duration::from_secs(5);
/// For so long sockets are counted after the last holder was told: what was lost is released meanwhile.
const AFTER: Duration = Duration::from_secs(4);
const SOCKETS: usize = 34;

/// Names that are waited for.
const NAMES: [usize; 2] = [10, 10_000];
/// No lease of theirs is renewed or ends meanwhile.
const LONG: Duration = Duration::from_secs(1_800);
const LOOKS: f64 = 2_000.0;
/// So many are released while the others go on being waited for.
const ALONE: usize = 10;
/// The time after which a waiter that was granted nothing has been left out.
const LOST: Duration = Duration::from_secs(60);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Leases of one client that end in an outage\n");
    println!(
        "| leases | sockets of the process without the client | with it at most | last told after its end, ms | all told after, s | bar |"
    );
    println!("|---|---|---|---|---|---|");
    for leases in LEASES {
        outage(bench, leases).await?;
    }
    println!("\n## Names that one idle client waits for\n");
    println!(
        "| names | gets/s | client and server, % of a core | one released: granted after, ms (median; longest) | \
         all others released: granted within, s | lost | bar |\n|---|---|---|---|---|---|---|"
    );
    for names in NAMES {
        waits(bench, names).await?;
    }
    Ok(())
}

async fn outage(bench: &Bench, leases: usize) -> Outcome {
    let others = sockets();
    let locks = bench.unguarded().await?;
    let held = hold(&locks, "lease", leases, LeaseOptions::new(LEASE)).await?;
    bench.server.stop().map_err(|error| error.to_string())?;
    let stopped = Instant::now();
    let most = tokio::spawn(async move {
        let mut most = 0;
        // A lease begins before its renewal is answered: none lasts longer from here on.
        while stopped.elapsed() < LEASE + AFTER {
            most = most.max(sockets());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        most
    });
    // A renewal that was answered just before may not have been heard of yet.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let told = held.into_iter().map(|guard| {
        let end = Instant::now() + guard.remaining();
        tokio::spawn(async move {
            guard.lost().await;
            (Instant::now().saturating_duration_since(end), stopped.elapsed())
        })
    });
    let (mut late, mut all) = (Duration::ZERO, Duration::ZERO);
    for told in join_all(told).await {
        let (after_its_end, after_the_stop) = told?;
        (late, all) = (late.max(after_its_end), all.max(after_the_stop));
    }
    let most = most.await?;
    bench.server.cont().map_err(|error| error.to_string())?;
    println!(
        "| {leases} | {others} | {most} | {:.1} | {:.1} | ≤ {SOCKETS} sockets of the client: {} |",
        late.as_secs_f64() * 1e3,
        all.as_secs_f64(),
        met(most.saturating_sub(others) <= SOCKETS)
    );
    // It goes on.
    locks.mutex("after").with_ttl(LONG).lock().await?.release().await?;
    Ok(())
}

async fn waits(bench: &Bench, names: usize) -> Outcome {
    let lease = LeaseOptions::new(LONG).with_auto_renew(false);
    let (holder, locks) = (bench.unguarded().await?, bench.unguarded().await?);
    let space = format!("waited for, {names}");
    let mut held = hold(&holder, &space, names, lease).await?;
    let mut waiting: Vec<JoinHandle<Outcome<Instant>>> = Vec::new();
    for name in 0..names {
        let mutex = locks.mutex(format!("{space}/{name}")).with_lease(lease);
        waiting.push(tokio::spawn(async move {
            let guard = mutex.lock().await?;
            let granted = Instant::now();
            guard.release().await?;
            Ok(granted)
        }));
    }
    // Their first pauses are short.
    tokio::time::sleep(Duration::from_secs_f64(2.0 + names as f64 / LOOKS * 2.0)).await;
    let (server, own) = (bench.server.pid().ok_or("no server of our own")?, std::process::id());
    let (gets, cpu, began) = (bench.figure("cmd_get").await?, cpu_seconds(server)? + cpu_seconds(own)?, Instant::now());
    tokio::time::sleep(bench.plan.round * bench.plan.rounds * 2).await;
    let time = began.elapsed().as_secs_f64();
    let gets = (bench.figure("cmd_get").await? - gets) as f64 / time;
    let cpu = (cpu_seconds(server)? + cpu_seconds(own)? - cpu) / time * 100.0;

    let few = names / 2 - ALONE.min(names / 2)..names / 2;
    let (mut alone, mut longest, mut lost) = (Series::new()?, Duration::ZERO, 0);
    let released = release_all(held.drain(few.clone()));
    let waited: Vec<_> = waiting.drain(few).collect();
    for (released, granted) in released.await?.into_iter().zip(granted(waited, LOST).await?) {
        let Some(granted) = granted else {
            lost += 1;
            continue;
        };
        let took = granted.saturating_duration_since(released);
        longest = longest.max(took);
        alone.record(took);
    }
    let began = Instant::now();
    release_all(held.into_iter()).await?;
    let granted = granted(waiting, LOST).await?;
    lost += granted.iter().filter(|granted| granted.is_none()).count();
    let all = granted.into_iter().flatten().max().map_or(Duration::ZERO, |last| last.saturating_duration_since(began));
    println!(
        "| {names} | {gets:.0} | {cpu:.1} | {:.0}; {:.0} | {:.1} | {lost} | ≤ {LOOKS} gets/s: {}; none lost: {} |",
        alone.micros(0.5) / 1e3,
        longest.as_secs_f64() * 1e3,
        all.as_secs_f64(),
        met(gets <= LOOKS),
        met(lost == 0)
    );
    Ok(())
}

/// Takes so many locks.
async fn hold(locks: &MemcachedLocks, space: &str, many: usize, lease: LeaseOptions) -> Outcome<Vec<MutexGuard>> {
    let mut held = Vec::new();
    for name in 0..many {
        held.push(locks.mutex(format!("{space}/{name}")).with_lease(lease).lock().await?);
    }
    Ok(held)
}

/// Sockets of this process.
fn sockets() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let leads_to = open.filter_map(|file| std::fs::read_link(file.path()).ok());
    leads_to.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

fn met(is: bool) -> &'static str {
    if is { "met" } else { "**missed**" }
}
