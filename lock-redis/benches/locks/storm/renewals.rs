//! Leases that are renewed over a connection on which many other requests are on their way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_redis::LeaseOptions;
use tokio::time::sleep;

use super::far::Far;
use super::table::{Bar, Table};
use crate::{Bench, Outcome};

const ROUND_TRIP: Duration = Duration::from_millis(20);
const LEASES: usize = 100;
const TTL: Duration = Duration::from_millis(1200);

/// The least that was left of any lease, in ms, the leases that were lost, and the cycles of the others per second.
struct Seen(f64, f64, f64);

pub(super) async fn run(bench: &Bench) -> Outcome {
    let tasks = if bench.is_quick { 1_000 } else { 10_000 };
    let title =
        format!("{LEASES} leases of 1.2 s, round trip 20 ms, while {tasks} tasks of the client lock and release");
    let table = Table::begin(&title, "without them");
    let time = super::time(bench);
    let (alone, among) = (hold(0, time).await?, hold(tasks, time).await?);
    table.row("the least that was left of a lease, ms", among.0, Some(alone.0), Bar::None);
    table.row("leases lost", among.1, Some(alone.1), Bar::AtMost(0.0));
    table.row("locks and releases/s of the others", among.2, None, Bar::None);
    Ok(())
}

async fn hold(tasks: usize, time: Duration) -> Outcome<Seen> {
    let Far { locks, .. } = &Far::at(ROUND_TRIP).await?;
    let mut held = Vec::new();
    for lease in 0..LEASES {
        held.push(locks.mutex(format!("lease {lease}")).with_lease(LeaseOptions::new(TTL)).lock().await?);
    }
    let (ends, cycles) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let others: Vec<_> = (0..tasks)
        .map(|task| {
            let (mutex, ends, cycles) = (locks.mutex(format!("task {task}")), ends.clone(), cycles.clone());
            tokio::spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    if let Ok(guard) = mutex.lock().await
                        && guard.release().await.is_ok()
                    {
                        cycles.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let (start, mut least) = (Instant::now(), TTL);
    while start.elapsed() < time {
        least = held.iter().map(|guard| guard.remaining()).fold(least, Duration::min);
        sleep(Duration::from_millis(5)).await;
    }
    let lost = held.iter().filter(|guard| !guard.is_held()).count();
    let rate = cycles.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    ends.store(true, Ordering::Relaxed);
    for other in others {
        other.await?;
    }
    Ok(Seen(least.as_secs_f64() * 1e3, lost as f64, rate))
}
