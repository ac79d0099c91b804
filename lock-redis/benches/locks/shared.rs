//! The kinds with several holders: a free read lock and a free permit against their bare script calls; readers and writers
//! on one name; a semaphore under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bench_support::{Cycle, Series, for_a_while};
use lock_redis::Semaphore;
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};

use crate::ours::Ours;
use crate::{Bench, Outcome, bare};

/// The commands of `RedisLocks`, word for word.
const ACQUIRE: &str = concat!(
    include_str!("../../src/store/scripts/holders/acquire_short.lua"),
    include_str!("../../src/store/scripts/holders/enqueue_short.lua"),
    include_str!("../../src/store/scripts/base.lua"),
    include_str!("../../src/store/scripts/holders/many.lua"),
    include_str!("../../src/store/scripts/acquire_free.lua"),
    include_str!("../../src/store/scripts/queue.lua"),
    include_str!("../../src/store/scripts/acquire.lua"),
);
const RELEASE: &str = concat!(
    include_str!("../../src/store/scripts/holders/release_short.lua"),
    include_str!("../../src/store/scripts/holders/handover_short.lua"),
    include_str!("../../src/store/scripts/base.lua"),
    include_str!("../../src/store/scripts/holders/many.lua"),
    include_str!("../../src/store/scripts/release.lua"),
    include_str!("../../src/store/scripts/queue.lua"),
    include_str!("../../src/store/scripts/release_promote.lua"),
);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    free(bench).await?;
    readers_and_writers(bench).await?;
    semaphore(bench).await
}

async fn free(bench: &Bench) -> Outcome {
    println!("\n## A free read lock, a free permit\n");
    println!("| tasks | variant | median µs | cycles/s | latency ÷ bare |");
    println!("|---|---|---|---|---|");
    let locks = bench.locks().await?;
    for tasks in [1, 64] {
        for (name, space, mode) in [("read + release", "rwlock", "R"), ("acquire + release", "semaphore", "P1/10")] {
            let bare = Bare::connect(bench, mode).await?;
            let ours = |task| match mode {
                "R" => Ours::Reader(locks.rwlock(format!("task {task}"))),
                _ => Ours::Permit(locks.semaphore(format!("task {task}"), 10)),
            };
            let (mut without, mut with) = (Series::new()?, Series::new()?);
            for _ in 0..bench.rounds {
                for_a_while(tasks, bench.round, &mut without, |task| bare.of(space, task)).await?;
                for_a_while(tasks, bench.round, &mut with, ours).await?;
            }
            println!(
                "| {tasks} | the two scripts of {name}, bare | {:.1} | {:.0} | 1.00 |",
                without.micros(0.5),
                without.per_second()
            );
            let ratio = with.micros(0.5) / without.micros(0.5);
            println!("| {tasks} | {name} | {:.1} | {:.0} | {ratio:.2} |", with.micros(0.5), with.per_second());
        }
    }
    Ok(())
}

/// The two scripts, without a lock library.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    digests: [String; 2],
    mode: &'static str,
    key: String,
    number: u64,
}

impl Bare {
    async fn connect(bench: &Bench, mode: &'static str) -> Outcome<Self> {
        let mut connection = bare::connection(bench).await?;
        let digests = [bare::load(&mut connection, ACQUIRE).await?, bare::load(&mut connection, RELEASE).await?];
        Ok(Self { connection, digests, mode, key: String::new(), number: 0 })
    }

    /// Acquires and releases a lock of the task's own.
    fn of(&self, space: &str, task: usize) -> Self {
        Self { key: format!("bare:{space}:{{task {task}}}"), ..self.clone() }
    }
}

impl Cycle for Bare {
    async fn go(&mut self) -> Outcome {
        let Self { connection, digests, mode, key, number } = self;
        *number += 1;
        let nonce = format!("{number:032x}");
        let owner = "{\"id\":\"00000000000000000000000000000000\",\"host\":\"localhost\",\"pid\":12345}";
        let [lock, queue, waiters, forced] = ["", ":q", ":w", ":x"].map(|ending| [key, ending].concat());
        let keys = [&*lock, &queue, &waiters, "bare:tokens", &forced];
        let mut acquire = cmd("EVALSHA");
        acquire.arg(&digests[0]).arg(5).arg(&keys).arg(&nonce).arg("0123456789abcdef").arg(10_000).arg(owner);
        acquire.arg("1").arg("").arg("bench:client:").arg("").arg(*mode);
        let _: Value = acquire.query_async(connection).await?;
        let mut release = cmd("EVALSHA");
        release.arg(&digests[1]).arg(5).arg(&keys).arg(&nonce).arg("0123456789abcdef");
        release.arg("bench:client:").arg("").arg("");
        let _: Value = release.query_async(connection).await?;
        Ok(())
    }
}

const READERS: usize = 64;
const WRITERS: usize = 4;

async fn readers_and_writers(bench: &Bench) -> Outcome {
    println!("\n## {READERS} readers and {WRITERS} writers on one name, holds of 1 ms\n");
    println!("| who | grants | least of one | fair share | least ÷ fair share | commands per grant |");
    println!("|---|---|---|---|---|---|");
    let mut connection = bare::connection(bench).await?;
    let lock = bench.locks().await?.rwlock("read and write");
    let before = bare::client_commands(&mut connection).await?;
    let end = Instant::now() + bench.round * bench.rounds;
    let mut running = Vec::new();
    for task in 0..READERS + WRITERS {
        let lock = lock.clone();
        running.push(tokio::spawn(async move {
            let mut grants = 0_u64;
            while Instant::now() < end {
                if task < READERS {
                    let held = lock.read().await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    held.release().await?;
                } else {
                    let held = lock.write().await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    held.release().await?;
                }
                grants += 1;
            }
            Outcome::Ok(grants)
        }));
    }
    let mut grants = Vec::new();
    for run in running {
        grants.push(run.await??);
    }
    let total: u64 = grants.iter().sum();
    let commands = (bare::client_commands(&mut connection).await? - before) as f64 / total as f64;
    let fair = total as f64 / (READERS + WRITERS) as f64;
    for (who, shares) in [("readers", &grants[..READERS]), ("writers", &grants[READERS..])] {
        let (sum, least) = (shares.iter().sum::<u64>(), shares.iter().min().copied().unwrap_or_default());
        println!("| {who} | {sum} | {least} | {fair:.0} | {:.2} | {commands:.2} |", least as f64 / fair);
    }
    Ok(())
}

const LIMIT: u32 = 10;

async fn semaphore(bench: &Bench) -> Outcome {
    println!("\n## A semaphore of {LIMIT}, 100 tasks, holds of 1 ms\n");
    println!(
        "| what | median hold µs | hand-over µs | permits/s | limit ÷ (hold + hand-over) | ratio | most at once |"
    );
    println!("|---|---|---|---|---|---|---|");
    let locks = bench.locks().await?;
    // One hand-over: a semaphore of one that tasks pass on without holding it.
    let (_, one, _) = contend(bench, locks.semaphore("one", 1), Duration::ZERO).await?;
    let hand_over = 1e6 / one.per_second();
    let (holds, grants, most) = contend(bench, locks.semaphore("ten", LIMIT), Duration::from_millis(1)).await?;
    let ideal = f64::from(LIMIT) / (holds.micros(0.5) + hand_over) * 1e6;
    println!(
        "| acquire + release | {:.0} | {hand_over:.0} | {:.0} | {ideal:.0} | {:.2} | {most} |",
        holds.micros(0.5),
        grants.per_second(),
        grants.per_second() / ideal,
    );
    Ok(())
}

/// The time for which permits were held, how many were granted in which time, and how many at once at most.
async fn contend(bench: &Bench, semaphore: Semaphore, hold: Duration) -> Outcome<(Series, Series, u32)> {
    let (present, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let start = Instant::now();
    let end = start + bench.round * bench.rounds;
    let mut running = Vec::new();
    for _ in 0..100 {
        let (semaphore, present, most) = (semaphore.clone(), present.clone(), most.clone());
        running.push(tokio::spawn(async move {
            let mut own = Series::new()?;
            while Instant::now() < end {
                let permit = semaphore.acquire().await?;
                let began = Instant::now();
                most.fetch_max(present.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
                present.fetch_sub(1, Ordering::SeqCst);
                own.record(began.elapsed());
                permit.release().await?;
            }
            Outcome::Ok(own)
        }));
    }
    let mut holds = Series::new()?;
    for run in running {
        holds.add(&run.await??)?;
    }
    let mut grants = holds.clone();
    grants.time = start.elapsed();
    Ok((holds, grants, most.load(Ordering::SeqCst)))
}
