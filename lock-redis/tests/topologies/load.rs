//! Many tasks that lock and release, and what they met.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_redis::{ErrorKind, RedisLocks};
use tokio::task::JoinHandle;

use crate::support::{PROMPTLY, eventually, ms, soon};

/// By when any single call has come back, if none hangs: the wait that it asks for, and the operation timeouts of what
/// goes wrong on the way.
const CALL: Duration = Duration::from_secs(20);

/// Tasks that lock and release, two on each name.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    /// How many times a lock was taken and given back.
    cycles: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<Tally>>,
}

/// What one task met.
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
    pub(crate) fn begin(clients: &[RedisLocks], tasks: usize) -> Self {
        let (stop, cycles) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let rooms: Vec<_> = (0..tasks.div_ceil(2)).map(|_| Arc::<Room>::default()).collect();
        let tasks = (0..tasks)
            .map(|i| {
                let locks = clients[i % clients.len()].clone();
                let (room, stop, cycles) = (rooms[i / 2].clone(), stop.clone(), cycles.clone());
                tokio::spawn(async move { work(&locks, &format!("load/{}", i / 2), &room, &stop, &cycles).await })
            })
            .collect();
        Self { stop, cycles, tasks }
    }

    /// Waits until every task has had its lock so many times more, on average.
    pub(crate) async fn goes_on(&self, times: u64) {
        let goal = self.cycles.load(Ordering::Relaxed) + times * self.tasks.len() as u64;
        let reached = async || (self.cycles.load(Ordering::Relaxed) >= goal).then_some(());
        eventually("the load goes on", PROMPTLY * 6, reached).await;
    }

    /// Ends all tasks: none hangs, and none met anything but a server that could not serve or an outcome that is unknown.
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
                let kinds = [ErrorKind::Unavailable, ErrorKind::Indeterminate, ErrorKind::NotHeld];
                assert!(kinds.contains(&error.kind()), "{error:?}");
                assert!(!error.to_string().contains("another request"), "a wrong reply: {error:?}");
            }
        }
        let cycles = self.cycles.load(Ordering::Relaxed);
        println!("{cycles} cycles, {errors} errors, longest gap {longest:?}");
        longest
    }
}

async fn work(locks: &RedisLocks, name: &str, room: &Room, stop: &AtomicBool, cycles: &AtomicU64) -> Tally {
    let mutex = locks.mutex(name.to_owned());
    let mut tally = Tally::default();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match soon("a lock call comes back", CALL, mutex.try_lock_for(ms(5000))).await {
            Ok(Some(held)) => {
                let before = room.token.swap(held.fencing_token().unwrap().as_u64(), Ordering::SeqCst);
                assert!(before < held.fencing_token().unwrap().as_u64(), "{name}: a token went back");
                assert!(!room.taken.swap(true, Ordering::SeqCst), "{name}: two holders");
                tokio::task::yield_now().await;
                room.taken.store(false, Ordering::SeqCst);
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
