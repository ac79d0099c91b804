//! Many tasks that lock and release, and what they met.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ErrorKind, RedisLocks};
use tokio::task::JoinHandle;

use crate::astray;
use crate::support::{PROMPTLY, eventually, ms, soon};

/// The number of tasks that lock and release while something happens. (With 48, the client crate's own cluster connection was seen
/// to come to a standstill.)
pub(crate) const TASKS: usize = 1000;

/// The time by which any single call has come back, if none hangs: the wait that it asks for, and the operation timeouts of what
/// goes wrong on the way.
const CALL: Duration = Duration::from_secs(20);

/// Tasks that lock and release, two on each name.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// The number of times that each task acquired and released its lock.
    cycles: Arc<[AtomicU64]>,
    tasks: Vec<JoinHandle<Tally>>,
}

/// The check that is made when a lock is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nobody else is inside, and the token is the highest so far.
    Inside,
    /// Nothing: a replica may become master that has not heard of every grant, and nobody promises otherwise.
    Away,
}

/// The course of one task.
#[derive(Debug, Default)]
struct Tally {
    longest_gap: Duration,
    errors: Vec<lock_redis::Error>,
}

/// Whether somebody is inside, and the highest token so far.
#[derive(Default)]
struct Room {
    taken: AtomicBool,
    token: AtomicU64,
}

impl Load {
    pub(crate) fn begin(clients: &[RedisLocks], tasks: usize, look: Look) -> Self {
        astray::watch();
        let stop = Arc::<AtomicBool>::default();
        let cycles: Arc<[AtomicU64]> = (0..tasks).map(|_| AtomicU64::default()).collect();
        let rooms: Vec<_> = (0..tasks.div_ceil(2)).map(|_| Arc::<Room>::default()).collect();
        let tasks = (0..tasks)
            .map(|i| {
                let locks = clients[i % clients.len()].clone();
                let (room, stop, cycles) = (rooms[i / 2].clone(), stop.clone(), cycles.clone());
                tokio::spawn(async move {
                    let room = (look == Look::Inside).then_some(&*room);
                    work(&locks, &format!("load/{}", i / 2), room, &stop, &cycles[i]).await
                })
            })
            .collect();
        Self { stop, cycles, tasks }
    }

    /// Waits until every task has had its lock so many times more, on average.
    pub(crate) async fn goes_on(&self, times: u64) {
        let goal = self.counted().iter().sum::<u64>() + times * self.tasks.len() as u64;
        let reached = async || (self.counted().iter().sum::<u64>() >= goal).then_some(());
        eventually("the load goes on", PROMPTLY * 6, reached).await;
    }

    /// Waits until every single task has had its lock once more.
    pub(crate) async fn nobody_is_stuck(&self) {
        let before = self.counted();
        let moved = async || self.counted().iter().zip(&before).all(|(now, before)| now > before).then_some(());
        eventually("every task goes on", PROMPTLY * 6, moved).await;
    }

    fn counted(&self) -> Vec<u64> {
        self.cycles.iter().map(|cycles| cycles.load(Ordering::Relaxed)).collect()
    }

    /// Ends all tasks: none hangs, and none met anything but a server that could not serve, an outcome that is unknown, or
    /// a grant that came too late to be of use.
    /// Returns the longest time that any task was without its lock.
    pub(crate) async fn end(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        let tallies = soon("every call comes back", CALL * 2, join_all(self.tasks)).await;
        let (mut longest, mut errors) = (Duration::ZERO, 0);
        for tally in tallies {
            let tally = tally.unwrap();
            longest = longest.max(tally.longest_gap);
            for error in tally.errors {
                errors += 1;
                let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::NotHeld, ErrorKind::TimedOut];
                assert!(kinds.contains(&error.kind()), "{error:?}");
            }
        }
        assert_eq!(astray::replies(), 0, "replies to other requests");
        let cycles: u64 = self.cycles.iter().map(|cycles| cycles.load(Ordering::Relaxed)).sum();
        println!("{cycles} cycles, {errors} errors, longest gap {longest:?}");
        longest
    }
}

async fn work(locks: &RedisLocks, name: &str, room: Option<&Room>, stop: &AtomicBool, cycles: &AtomicU64) -> Tally {
    let mutex = locks.mutex(name.to_owned());
    let mut tally = Tally::default();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match soon("a lock call comes back", CALL, mutex.try_lock_for(ms(5000))).await {
            Ok(Some(held)) => {
                let token = held.fencing_token().unwrap().as_u64();
                if let Some(room) = room {
                    assert!(room.token.swap(token, Ordering::SeqCst) < token, "{name}: a token went back");
                    assert!(!room.taken.swap(true, Ordering::SeqCst), "{name}: two holders");
                }
                tokio::task::yield_now().await;
                if let Some(room) = room {
                    room.taken.store(false, Ordering::SeqCst);
                }
                match soon("a release comes back", CALL, held.release()).await {
                    Ok(()) => {
                        tally.longest_gap = tally.longest_gap.max(last.elapsed());
                        last = Instant::now();
                        cycles.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => tally.errors.push(error),
                }
            }
            Ok(None) => {}
            Err(error) => tally.errors.push(error),
        }
    }
    tally
}
