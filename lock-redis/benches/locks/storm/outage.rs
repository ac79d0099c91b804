//! Many tasks of one client over a slow link, and a server that is away for some seconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lock_redis::{ClientOptions, ErrorKind};
use lock_testkit::proxy::{Direction, LinkFault, Toxic};
use tokio::time::sleep;

use super::far::Far;
use super::table::{Bar, Table};
use super::truth::whole;
use crate::{Bench, Outcome};

const ROUND_TRIP: Duration = Duration::from_millis(20);
const HOLD: Duration = Duration::from_secs(1);
const OUTAGE: Duration = Duration::from_secs(5);
/// The time for which the rate of before is taken, and in which the rate of afterwards is to come back.
const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(12);
/// An acquire with this much time left when the server is back succeeds.
const ENOUGH: Duration = Duration::from_secs(2).saturating_add(ROUND_TRIP);
/// The time that a release may take beside one operation timeout, since thousands end at once.
const SLACK: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Seen {
    grants: Mutex<Vec<Instant>>,
    /// Beginning and end of the acquires that failed.
    failed: Mutex<Vec<(Instant, Instant)>>,
    /// Releases that found nothing, or do not know what they found.
    lost: AtomicU64,
    /// Releases that ended in any other error.
    failed_releases: AtomicU64,
    /// The longest release, in µs.
    longest_release: AtomicU64,
    ends: AtomicBool,
}

pub(super) async fn run(bench: &Bench) -> Outcome {
    let tasks = if bench.is_quick { 1_000 } else { 10_000 };
    let title = format!("{tasks} tasks of one client, round trip 20 ms, holds of 1 s, the server away for 5 s");
    let table = Table::begin(&title, "before");
    let Far { server, link, locks, .. } = &Far::at(ROUND_TRIP).await?;
    let patience = ClientOptions::default().patience;
    let seen = Arc::new(Seen::default());
    let running: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(cycles(locks.mutex(format!("task {task}")), seen.clone()))).collect();

    sleep(HOLD * 3).await;
    let (begin, first) = (Instant::now(), seen.granted());
    sleep(BEFORE).await;
    let rate = (seen.granted() - first) as f64 / begin.elapsed().as_secs_f64();

    let away = Instant::now();
    whole(server.kill())?;
    let refusing = link.inject(LinkFault::new(Toxic::Refuse, Direction::Both));
    sleep(OUTAGE).await;
    whole(server.restart().await)?;
    let connections = link.connections();
    refusing.heal().map_err(|unproven| unproven.to_string())?;
    let back = Instant::now();
    sleep(AFTER).await;
    let connections = link.connections() - connections;
    seen.ends.store(true, Ordering::Relaxed);
    for task in running {
        task.await?;
    }

    let grants = locked(&seen.grants).clone();
    let recovered = full_rate(&grants, back, rate).unwrap_or(AFTER);
    let all = locked(&seen.failed).clone();
    let early = all.iter().filter(|(_, ended)| *ended < away).count();
    let hopeful = |(began, ended): &&(Instant, Instant)| {
        *ended >= away && (back < *began || patience.saturating_sub(back.duration_since(*began)) >= ENOUGH)
    };
    let failed = all.iter().filter(hopeful).count();
    let later = grants.iter().filter(|at| **at >= back + AFTER / 2 && **at < back + AFTER).count();
    table.row("connections made afterwards, commands and pushes", connections as f64, None, Bar::AtMost(2.0));
    table.row("acquires that failed with 2 s + a round trip left", failed as f64, None, Bar::AtMost(0.0));
    table.row("acquires that failed with less", (all.len() - early - failed) as f64, Some(early as f64), Bar::None);
    table.row("seconds until the rate of before is there", recovered.as_secs_f64(), None, Bar::AtMost(2.0));
    table.row("grants/s, 6 to 12 s afterwards", later as f64 / (AFTER / 2).as_secs_f64(), Some(rate), Bar::None);
    let told = |number: &AtomicU64| number.load(Ordering::Relaxed) as f64;
    let bound = Bar::AtMost((ClientOptions::default().op_timeout + SLACK).as_secs_f64());
    table.row("longest release, s", told(&seen.longest_release) / 1e6, None, bound);
    table.row("releases not held or unknown: the server had forgotten the lock", told(&seen.lost), None, Bar::None);
    table.row("releases that ended in another error", told(&seen.failed_releases), None, Bar::AtMost(0.0));
    Ok(())
}

async fn cycles(mutex: lock_redis::Mutex, seen: Arc<Seen>) {
    while !seen.ends.load(Ordering::Relaxed) {
        let began = Instant::now();
        let Ok(guard) = mutex.lock().await else {
            locked(&seen.failed).push((began, Instant::now()));
            continue;
        };
        locked(&seen.grants).push(Instant::now());
        sleep(HOLD).await;
        let began = Instant::now();
        let released = guard.release().await;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        seen.longest_release.fetch_max(took, Ordering::Relaxed);
        match released.map_err(|error| error.kind()) {
            Ok(()) => {}
            // The server has forgotten what was held when it was killed.
            Err(ErrorKind::NotHeld | ErrorKind::Indeterminate) => {
                seen.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => {
                seen.failed_releases.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Seen {
    fn granted(&self) -> usize {
        locked(&self.grants).len()
    }
}

/// The time until nine tenths of the rate were granted within one hold, which is one turn of every task.
fn full_rate(grants: &[Instant], back: Instant, rate: f64) -> Option<Duration> {
    let mut after: Vec<_> = grants.iter().filter(|at| **at >= back).copied().collect();
    after.sort();
    let wanted = (rate * HOLD.as_secs_f64() * 0.9).ceil() as usize;
    let whole_turn = |turn: &&[Instant]| matches!(turn, [first, .., last] if last.duration_since(*first) <= HOLD);
    after.windows(wanted.max(2)).find(whole_turn).and_then(|turn| Some(turn.last()?.duration_since(back)))
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
