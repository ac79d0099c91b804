//! How soon every holder of one session is told that it is lost, beside as many tasks that wait for one channel of tokio.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_testkit::faults::StoreFault;
use lock_zk::LeaseOptions;
use tokio::sync::watch;

use crate::{Bench, Outcome, locks};

const HOLDERS: [usize; 2] = [1_000, 10_000];
const AT_ONCE: usize = 200;
const SESSION: Duration = Duration::from_secs(60);

pub(crate) async fn run(bench: &Bench) -> Outcome {
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

async fn lost(bench: &Bench, holders: usize) -> Outcome<Duration> {
    let client = locks(bench.server.url(), SESSION).await?;
    let lease = LeaseOptions::with_ttl(SESSION);
    let mut held = Vec::new();
    for chunk in (0..holders).collect::<Vec<_>>().chunks(AT_ONCE) {
        let names = chunk.iter().map(|number| client.mutex(format!("storm {number}")).with_lease(lease));
        for guard in join_all(names.map(async |mutex| mutex.lock().await)).await {
            held.push(guard?);
        }
    }
    let truth = bench.server.client().await.map_err(|broken| broken.to_string())?;
    let sessions = truth.sessions_below("/bench").await.map_err(|broken| broken.to_string())?;
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
        stolen.map_err(|broken| broken.to_string())?.heal().map_err(|unproven| unproven.to_string())?;
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
