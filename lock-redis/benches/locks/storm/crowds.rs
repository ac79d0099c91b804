//! Many who stand in one queue: readers behind a writer, and the dead in front of a living waiter.

use std::time::{Duration, Instant};

use bench_support::Process;
use lock_redis::{LeaseOptions, RedisConfig, RedisLocks};
use tokio::time::sleep;

use super::table::{Bar, Table};
use super::truth::{Truth, server};
use crate::turns::{URL, VARIANT};
use crate::{Bench, Outcome};

/// The variant of a child that waits, and the variable that says how many times.
const CROWD: &str = "crowd";
const COUNT: &str = "LOCK_BENCH_CHILD_COUNT";
const FEW: usize = 100;
/// A waiter whose process has ended counts as dead after 3 s.
const DEAD: Duration = Duration::from_secs(4);

/// The slowest script in ms, and the last one in after so many ms.
struct Seen(f64, f64);

pub(super) async fn run(bench: &Bench) -> Outcome {
    let many = if bench.is_quick { 1_000 } else { 10_000 };
    let table = Table::begin(&format!("{many} readers behind one writer"), "100 readers");
    let (few, all) = (readers(FEW).await?, readers(many).await?);
    table.row("slowest script, ms", all.0, Some(few.0), Bar::AtMost(5.0));
    table.row("the last reader is in after ms", all.1, Some(few.1), Bar::AtMost(1000.0));

    let table = Table::begin(&format!("{many} dead waiters in front of a living one"), "100 dead");
    let (few, all) = (corpses(FEW).await?, corpses(many).await?);
    table.row("slowest script, ms", all.0, Some(few.0), Bar::AtMost(5.0));
    table.row("the living one is in after ms", all.1, Some(few.1), Bar::AtMost(1000.0));
    Ok(())
}

fn lease() -> LeaseOptions {
    LeaseOptions::new(Duration::from_secs(120)).with_auto_renew(false)
}

async fn readers(count: usize) -> Outcome<Seen> {
    let server = server().await?;
    let truth = Truth::of(&server)?;
    let config = || RedisConfig::new(server.url()).with_prefix("bench");
    let (writer, others) = (RedisLocks::connect_with(config()).await?, RedisLocks::connect_with(config()).await?);
    let writing = writer.rwlock("crowd").with_lease(lease()).write().await?;
    let mut waiting = Vec::new();
    for reader in 0..count {
        let lock = others.rwlock("crowd").with_lease(lease());
        waiting.push(tokio::spawn(async move { lock.read().await.map(|guard| (Instant::now(), guard)) }));
        if reader % 500 == 499 {
            truth.until_waiting("bench:rwlock:{crowd}", reader + 1).await?;
        }
    }
    truth.until_waiting("bench:rwlock:{crowd}", count).await?;
    truth.watch().await?;
    let start = Instant::now();
    writing.release().await?;
    let (mut last, mut reading) = (Duration::ZERO, Vec::new());
    for reader in waiting {
        let (at, guard) = reader.await??;
        last = last.max(at.duration_since(start));
        reading.push(guard);
    }
    Ok(Seen(truth.slowest().await?, last.as_secs_f64() * 1e3))
}

async fn corpses(count: usize) -> Outcome<Seen> {
    let server = server().await?;
    let truth = Truth::of(&server)?;
    let locks = RedisLocks::connect_with(RedisConfig::new(server.url()).with_prefix("bench")).await?;
    let guard = locks.mutex("crowd").with_lease(lease()).lock().await?;
    let many = count.to_string();
    let mut others = Process::start(&[(URL, server.url()), (VARIANT, CROWD), (COUNT, &many)])?;
    truth.until_waiting("bench:mutex:{crowd}", count).await?;
    others.kill().await?;
    let mutex = locks.mutex("crowd").with_lease(lease());
    let living = tokio::spawn(async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) });
    sleep(DEAD).await;
    truth.watch().await?;
    let start = Instant::now();
    guard.release().await?;
    let (at, _living) = living.await??;
    let took = at.duration_since(start);
    // The rest of the clearing-up.
    sleep(Duration::from_secs(1)).await;
    Ok(Seen(truth.slowest().await?, took.as_secs_f64() * 1e3))
}

/// One process that waits many times for one lock, until it is killed; `None` if it is to do something else.
pub(crate) async fn child(url: &str) -> Option<Outcome> {
    (std::env::var(VARIANT).ok()? == CROWD).then_some(())?;
    let count = std::env::var(COUNT).ok()?.parse().ok()?;
    Some(wait(url, count).await)
}

async fn wait(url: &str, count: usize) -> Outcome {
    let locks = RedisLocks::connect_with(RedisConfig::new(url).with_prefix("bench")).await?;
    for waiter in 0..count {
        let mutex = locks.mutex("crowd");
        tokio::spawn(async move { mutex.lock().await.map(drop) });
        if waiter % 500 == 499 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    std::future::pending().await
}
