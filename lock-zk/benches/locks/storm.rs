//! Thousands of locks of one client: how soon every holder of a session is told that it is lost, beside as many tasks that wait
//! for one channel of tokio; and names that are waited for, beside a hundred of them.

use std::time::{Duration, Instant};

use bench_support::{granted, release_all};
use futures_util::future::join_all;
use lock_testkit_servers::faults::StoreFault;
use lock_zk::{LeaseOptions, ZkLocks};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::stats::micros;
use crate::{Bench, Outcome, config, locks};

const HOLDERS: [usize; 2] = [1_000, 10_000];
const AT_ONCE: usize = 200;
const SESSION: Duration = Duration::from_secs(60);

/// Names that are waited for.
const NAMES: [usize; 2] = [100, 10_000];
/// So many looks of one client there are in a second at most.
const LOOKS: f64 = 2_000.0;
#[cfg(feature = "zookeeper-async")]
const ASYNC: &str = "zookeeper-async";
#[cfg(feature = "zookeeper-async")]
const CRATES: [&str; 2] = ["zookeeper-client", ASYNC];
#[cfg(not(feature = "zookeeper-async"))]
const CRATES: [&str; 1] = ["zookeeper-client"];
/// So many are released while the others go on being waited for.
const ALONE: usize = 10;
/// The time after which a waiter that was granted nothing has been left out.
const LEFT_OUT: Duration = Duration::from_secs(120);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    lost_sessions(bench).await?;
    println!("\n## Names that one idle client waits for, held by another one\n");
    println!(
        "| client crate | names | taken within, s | waited for within, s | requests/s before; while all wait | watches | \
         one released: granted after, ms (median; longest) | all others released: granted within, s | lost | bar |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for names in NAMES {
        for by in CRATES {
            waits(bench, by, names).await?;
        }
    }
    Ok(())
}

async fn lost_sessions(bench: &Bench) -> Outcome {
    println!("\n## A lost session: from the first holder told to the last one\n");
    println!("| holders | last told after, ms | waiting for one channel, ms | ratio | bar |\n|---|---|---|---|---|");
    for holders in HOLDERS {
        let told = lost(bench, holders).await?;
        let channel = channel(holders).await?;
        let [told, channel] = [told, channel].map(|took| took.as_secs_f64() * 1e3);
        println!("| {holders} | {told:.1} | {channel:.1} | {:.2} | ≤ 100 ms |", told / channel);
    }
    Ok(())
}

async fn client(bench: &Bench, by: &str) -> Outcome<ZkLocks> {
    let config = config(bench.server.url(), SESSION).with_prefix(by);
    #[cfg(feature = "zookeeper-async")]
    if by == ASYNC {
        return Ok(ZkLocks::connect_with_zookeeper_async(config).await?);
    }
    Ok(ZkLocks::connect_with(config).await?)
}

async fn waits(bench: &Bench, by: &str, names: usize) -> Outcome {
    let lease = LeaseOptions::new(SESSION);
    let (holder, locks) = (client(bench, by).await?, client(bench, by).await?);
    let name = |number: usize| format!("waited for, {names}/{number}");
    let began = Instant::now();
    let mut held = Vec::new();
    for chunk in (0..names).collect::<Vec<_>>().chunks(AT_ONCE) {
        let taken = chunk.iter().map(|number| holder.mutex(name(*number)).with_lease(lease));
        for guard in join_all(taken.map(async |mutex| mutex.lock().await)).await {
            held.push(guard?);
        }
    }
    let taken = began.elapsed();
    let nodes = async || bench.server.figure("zk_ephemerals_count").await.map_err(|error| error.to_string());
    let (before, idle, began) = (nodes().await?, per_second(bench).await?, Instant::now());
    let mut waiting: Vec<JoinHandle<Outcome<Instant>>> = Vec::new();
    for number in 0..names {
        let mutex = locks.mutex(name(number)).with_lease(lease);
        waiting.push(tokio::spawn(async move {
            let guard = mutex.lock().await?;
            let granted = Instant::now();
            guard.release().await?;
            Ok(granted)
        }));
    }
    while nodes().await? < before + i64::try_from(names)? {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let stand = began.elapsed();
    // Whoever came first looks soon.
    tokio::time::sleep(Duration::from_secs_f64(2.0 + names as f64 / LOOKS * 2.0)).await;
    let busy = per_second(bench).await?;
    let watches = bench.server.figure("zk_watch_count").await.map_err(|error| error.to_string())?;

    let few = names / 2 - ALONE..names / 2;
    let (mut alone, mut lost) = (Vec::new(), 0);
    let released = release_all(held.drain(few.clone()));
    let waited: Vec<_> = waiting.drain(few).collect();
    for (released, granted) in released.await?.into_iter().zip(granted(waited, LEFT_OUT).await?) {
        match granted {
            Some(granted) => alone.push(granted.saturating_duration_since(released)),
            None => lost += 1,
        }
    }
    let longest = alone.iter().max().copied().unwrap_or_default();
    let began = Instant::now();
    release_all(held.into_iter()).await?;
    let granted = granted(waiting, LEFT_OUT).await?;
    lost += granted.iter().filter(|granted| granted.is_none()).count();
    let all = granted.into_iter().flatten().max().map_or(Duration::ZERO, |last| last.saturating_duration_since(began));
    println!(
        "| {by} | {names} | {:.1} | {:.1} | {idle:.0}; {busy:.0} | {watches} | {:.0}; {:.0} | {:.1} | {lost} | \
         none lost: {} |",
        taken.as_secs_f64(),
        stand.as_secs_f64(),
        micros(&mut alone, 0.5) / 1e3,
        longest.as_secs_f64() * 1e3,
        all.as_secs_f64(),
        if lost == 0 { "met" } else { "**missed**" }
    );
    Ok(())
}

/// Requests that the server receives in a second.
async fn per_second(bench: &Bench) -> Outcome<f64> {
    let (before, began) = (bench.requests().await?, Instant::now());
    tokio::time::sleep(bench.round * bench.rounds).await;
    Ok((bench.requests().await? - before) as f64 / began.elapsed().as_secs_f64())
}

async fn lost(bench: &Bench, holders: usize) -> Outcome<Duration> {
    let client = locks(bench.server.url(), SESSION).await?;
    let lease = LeaseOptions::new(SESSION);
    let mut held = Vec::new();
    for chunk in (0..holders).collect::<Vec<_>>().chunks(AT_ONCE) {
        let names = chunk.iter().map(|number| client.mutex(format!("storm {number}")).with_lease(lease));
        for guard in join_all(names.map(async |mutex| mutex.lock().await)).await {
            held.push(guard?);
        }
    }
    let truth = bench.server.client().await.map_err(|error| error.to_string())?;
    let sessions = truth.sessions_below("/bench").await.map_err(|error| error.to_string())?;
    let told: Vec<_> = held
        .into_iter()
        .map(|guard| {
            tokio::spawn(async move {
                guard.lost().await;
                Instant::now()
            })
        })
        .collect();
    for session in sessions {
        let stolen = StoreFault::StealSession { session }.inject(&bench.server).await;
        stolen.map_err(|error| error.to_string())?.heal().map_err(|unproven| unproven.to_string())?;
    }
    spread(told).await
}

async fn channel(holders: usize) -> Outcome<Duration> {
    let (news, _) = watch::channel(());
    let told = (0..holders).map(|_| {
        let mut news = news.subscribe();
        tokio::spawn(async move {
            let _ = news.changed().await;
            Instant::now()
        })
    });
    let told: Vec<_> = told.collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    news.send_replace(());
    spread(told).await
}

/// From the first of these instants to the last one.
async fn spread(tasks: Vec<tokio::task::JoinHandle<Instant>>) -> Outcome<Duration> {
    let mut instants = join_all(tasks).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    instants.sort();
    let (Some(first), Some(last)) = (instants.first(), instants.last()) else { return Ok(Duration::ZERO) };
    Ok(last.duration_since(*first))
}
