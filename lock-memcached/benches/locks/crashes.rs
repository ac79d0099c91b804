//! Eight processes on one name, holds of 1 ms, one in a thousand of which ends with its process: who was inside with whom,
//! tokens, and every process's share. The baseline is that no two are inside at once.

use std::time::{Duration, Instant};

use bench_support::{Outcome, Process, jain};
use lock_memcached::Mutex;

use crate::Bench;
use crate::child::{PART, URL, now};

const PROCESSES: usize = 8;
const HOLD: Duration = Duration::from_millis(1);
/// One hold of so many is the process's last.
const CRASHES: u64 = 1000;

/// One line of a process about a hold.
struct Hold {
    from: u64,
    /// Nothing if the process has ended.
    to: Option<u64>,
    token: u64,
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    let time = Duration::from_secs(if bench.plan.quick { 10 } else { 60 });
    println!("\n## {PROCESSES} processes, {} s, holds of 1 ms, crash {} %\n", time.as_secs(), 100.0 / CRASHES as f64);
    println!(
        "| turns | crashes | two at once | tokens that did not grow | shares | Jain | bar |\n|---|---|---|---|---|---|---|"
    );
    let end = Instant::now() + time;
    let lives: Vec<_> = (0..PROCESSES).map(|_| tokio::spawn(live(bench.server.url().to_owned(), end))).collect();
    let mut shares = Vec::new();
    let (mut holds, mut crashes) = (Vec::new(), 0);
    for life in lives {
        let own = life.await??;
        shares.push(u64::try_from(own.len())?);
        crashes += own.iter().filter(|hold| hold.to.is_none()).count();
        holds.extend(own);
    }
    holds.sort_by_key(|hold| hold.from);
    let pairs = || holds.iter().zip(holds.iter().skip(1));
    let both = pairs().filter(|(one, next)| one.to.is_some_and(|to| next.from < to)).count();
    let stale = pairs().filter(|(one, next)| next.token <= one.token).count();
    println!(
        "| {} | {crashes} | {both} | {stale} | {shares:?} | {:.3} | 0; 0; Jain ≥ 0.9 |",
        holds.len(),
        jain(&shares)
    );
    Ok(())
}

/// One place among the eight: a process, and another one whenever it has ended.
async fn live(url: String, end: Instant) -> Outcome<Vec<Hold>> {
    let mut holds: Vec<Hold> = Vec::new();
    while Instant::now() < end {
        let mut process = Process::start(&[(URL, &url), (PART, "crashes")])?;
        process.line().await?;
        process.say(&end.saturating_duration_since(Instant::now()).as_millis().to_string()).await?;
        while let Some(line) = process.next_line().await? {
            let (first, second) = line.split_once(' ').ok_or("a line of one word")?;
            if first == "out" {
                holds.last_mut().ok_or("out before in")?.to = Some(second.parse()?);
            } else {
                holds.push(Hold { from: first.parse()?, to: None, token: second.parse()? });
            }
        }
    }
    Ok(holds)
}

/// Takes turns, and says of each when it began, with which token, and when it ended.
pub(crate) async fn child(mutex: &Mutex, end: Instant) -> Outcome {
    while let Some(guard) = mutex.try_lock_for(end.saturating_duration_since(Instant::now())).await? {
        let token = guard.fencing_token().ok_or("no token")?.as_u64();
        println!("{} {token}", now());
        tokio::time::sleep(HOLD).await;
        if now().is_multiple_of(CRASHES) {
            // As a crash does it: nothing is released.
            std::process::abort();
        }
        println!("out {}", now());
        guard.release().await?;
        if Instant::now() >= end {
            break;
        }
    }
    Ok(())
}
