//! Hand-over between two processes, one task each, on one name: from the call of `release` until the other one knows. The
//! baseline is the longest pause between two looks of a waiter.

use std::time::{Duration, Instant};

use bench_support::{Outcome, Process, Series};
use lock_memcached::RestartPolicy;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::child::{PART, URL, now};
use crate::{Bench, crashes, locks};

/// Longer than the row of turns that one process may have.
const HOLD: Duration = Duration::from_millis(60);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Hand-over between two processes, holds of {} ms\n", HOLD.as_millis());
    println!("| median ms | p95 ms | hand-overs | bar |\n|---|---|---|---|");
    let mut processes = Vec::new();
    for _ in 0..2 {
        let mut process = Process::start(&[(URL, bench.server.url()), (PART, "processes")])?;
        process.line().await?;
        processes.push(process);
    }
    let time = bench.plan.round * bench.plan.rounds * 4;
    for process in &mut processes {
        process.say(&time.as_millis().to_string()).await?;
    }
    let mut turns = Vec::new();
    for (number, process) in processes.iter_mut().enumerate() {
        let own: Vec<Turn> = serde_json::from_str(&process.line().await?)?;
        turns.extend(own.into_iter().map(|(from, to)| (from, to, number)));
    }
    turns.sort_unstable();
    let mut series = Series::new()?;
    for (one, next) in turns.iter().zip(turns.iter().skip(1)).filter(|(one, next)| one.2 != next.2) {
        series.record(Duration::from_nanos(next.0.saturating_sub(one.1)));
    }
    println!("| {:.1} | {:.1} | {} | median ≤ 25 |", series.micros(0.5) / 1e3, series.micros(0.95) / 1e3, series.count);
    Ok(())
}

/// One turn of a process: when it knew that it was its own, and when it began to pass it on, in nanoseconds of the
/// machine's clock since boot.
type Turn = (u64, u64);

/// One process: says that it is ready, is told for how long, takes turns, and says when.
pub(crate) async fn child((url, part): (String, String)) -> Outcome {
    let mutex = locks(&url, RestartPolicy::Quarantine).await?.mutex(&*part);
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let milliseconds = input.next_line().await?.ok_or("no word came")?.parse()?;
    let end = Instant::now() + Duration::from_millis(milliseconds);
    if part == "crashes" {
        return crashes::child(&mutex, end).await;
    }
    let mut turns: Vec<Turn> = Vec::new();
    while Instant::now() < end {
        let guard = mutex.lock().await?;
        let from = now();
        tokio::time::sleep(HOLD).await;
        turns.push((from, now()));
        guard.release().await?;
        // The other one's turn.
        tokio::time::sleep(HOLD / 4).await;
    }
    println!("{}", serde_json::to_string(&turns)?);
    Ok(())
}
