//! A holder's process is killed while somebody waits: how long after the end of its lease the waiter has the lock.
//!
//! The baseline is the lease that the server still has for the dead holder when it is killed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use bench_support::Series;
use redis::cmd;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::process::Command;

use crate::turns::{URL, VARIANT};
use crate::{Bench, Outcome, bare};

/// The variant of a child that holds a lock until it is killed.
pub(crate) const HOLDER: &str = "holder";

const NAME: &str = "death";
const TTL: Duration = Duration::from_secs(2);
const ROUNDS: usize = 20;
const BAR: Duration = Duration::from_millis(150);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    let rounds = if bench.is_quick { 3 } else { ROUNDS };
    println!("\n## A holder is killed, TTL {TTL:?}, {rounds} times\n");
    println!("| from the end of the dead one's lease to the next holder: median ms | most ms | within {BAR:?} |");
    println!("|---|---|---|");
    let (mut late, mut within) = (Series::new()?, 0);
    for _ in 0..rounds {
        let beyond = round(bench).await?;
        within += usize::from(beyond <= BAR);
        late.record(beyond);
    }
    println!("| {:.1} | {:.1} | {within} of {rounds} |", late.micros(0.5) / 1000.0, late.micros(1.0) / 1000.0);
    Ok(())
}

/// The time from the end of the dead holder's lease until the waiter has the lock.
async fn round(bench: &Bench) -> Outcome<Duration> {
    let mut child = Command::new(std::env::current_exe()?)
        .env(URL, &bench.url)
        .env(VARIANT, HOLDER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    lines.next_line().await?.ok_or("the holder ended before it held")?;
    let locks = bench.locks().await?;
    let mutex = locks.mutex(NAME).with_ttl(TTL);
    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| (Instant::now(), guard)) });
    // Until it stands in the queue; and the holder has renewed by then.
    let mut connection = bare::connection(bench).await?;
    let queue = format!("bench:mutex:{{{NAME}}}:q");
    while cmd("ZCARD").arg(&queue).query_async::<i64>(&mut connection).await? == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(TTL / 2).await;
    child.kill().await?;
    let killed_at = Instant::now();
    let left: i64 = cmd("PTTL").arg(format!("bench:mutex:{{{NAME}}}")).query_async(&mut connection).await?;
    let ended_at = killed_at + Duration::from_millis(u64::try_from(left)?);
    let (granted_at, guard) = waiting.await??;
    guard.release().await?;
    locks.close().await?;
    Ok(granted_at.saturating_duration_since(ended_at))
}

/// Holds the lock until it is killed, or its input ends.
pub(crate) async fn hold(bench: &Bench, input: &mut Lines<BufReader<Stdin>>) -> Outcome {
    let locks = bench.locks().await?;
    let guard = locks.mutex(NAME).with_ttl(TTL).lock().await?;
    println!("held");
    input.next_line().await?;
    Ok(guard.release().await?)
}
