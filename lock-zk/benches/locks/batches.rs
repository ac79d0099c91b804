//! Many tasks of one client that lock and release a free name each, beside as many by the textbook's recipe over one session of the
//! same client crate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_zk::{Mutex, RwLock, Semaphore, ZkLocks};

use crate::plain::Plain;
use crate::stats::micros;
use crate::{Bench, Outcome};

/// The numbers of tasks.
const TASKS: [usize; 5] = [1, 2, 8, 64, 1_000];
/// The cycles of each task in a round that is not measured: they make the directories, and have the server's compiler at work.
const WARM_UP: usize = 3;
const NAMES: [&str; 4] = ["textbook recipe, zookeeper-client", "mutex", "write lock", "permit"];

/// The lock of one task.
enum Subject {
    Textbook(Plain),
    Mutex(Mutex),
    Write(RwLock),
    Permit(Semaphore),
}

impl Subject {
    fn new(variant: usize, plain: &Plain, locks: &ZkLocks, task: usize) -> Self {
        let name = format!("batches/{task}");
        match variant {
            0 => Self::Textbook(plain.below(task)),
            1 => Self::Mutex(locks.mutex(name)),
            2 => Self::Write(locks.rwlock(name)),
            _ => Self::Permit(locks.semaphore(name, 3)),
        }
    }

    async fn cycle(&self) -> Outcome {
        match self {
            Self::Textbook(plain) => plain.cycle().await?,
            Self::Mutex(mutex) => mutex.lock().await?.release().await?,
            Self::Write(lock) => lock.write().await?.release().await?,
            Self::Permit(semaphore) => semaphore.acquire().await?.release().await?,
        }
        Ok(())
    }
}

/// The cycles of one variant, and the time, the requests and the processors' seconds that they took: the server's, and ours.
#[derive(Default)]
struct Cycles {
    times: Vec<Duration>,
    took: Duration,
    requests: u64,
    cpu: [f64; 2],
}

/// The seconds of the processors that the server and this process have used.
fn cpu(bench: &Bench) -> Outcome<[f64; 2]> {
    let server = bench.server.pid().ok_or("the server is down")?;
    Ok([bench_support::cpu_seconds(server)?, bench_support::cpu_seconds(std::process::id())?])
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release, a name for each task of one client\n");
    println!(
        "| tasks | variant | cycles/s | ÷ textbook | median µs | 99 % µs | requests | server CPU µs | client CPU µs | bar |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let (plain, locks) = (Plain::connect(bench, "/plain/batches").await?, bench.locks().await?);
    for tasks in TASKS {
        for task in 0..tasks {
            plain.below(task).make().await?;
        }
        let subject = |variant, task| Arc::new(Subject::new(variant, &plain, &locks, task));
        let subjects: [Vec<_>; 4] =
            std::array::from_fn(|variant| (0..tasks).map(|task| subject(variant, task)).collect());
        let mut cycles: [Cycles; 4] = Default::default();
        for subjects in &subjects {
            measured(subjects, bench.round, &mut Cycles::default()).await?;
        }
        for _ in 0..bench.rounds {
            for (subjects, cycles) in subjects.iter().zip(&mut cycles) {
                let (before, used) = (bench.requests().await?, cpu(bench)?);
                measured(subjects, bench.round, cycles).await?;
                for (sum, (now, before)) in cycles.cpu.iter_mut().zip(cpu(bench)?.into_iter().zip(used)) {
                    *sum += now - before;
                }
                cycles.requests += bench.requests().await? - before;
            }
        }
        let rate = |cycles: &Cycles| cycles.times.len() as f64 / cycles.took.as_secs_f64();
        let base = rate(&cycles[0]);
        for (variant, (name, cycles)) in NAMES.iter().zip(&mut cycles).enumerate() {
            let (rate, requests) = (rate(cycles), cycles.requests as f64 / cycles.times.len() as f64);
            let (median, late) = (micros(&mut cycles.times, 0.5), micros(&mut cycles.times, 0.99));
            let bar = match (tasks, variant) {
                (64, 1 | 2) => "≥ 3 (aim 4)",
                (1, 3) => "≥ 0.85",
                _ => "",
            };
            let ratio = rate / base;
            let [server, client] = cycles.cpu.map(|seconds| seconds * 1e6 / cycles.times.len() as f64);
            println!(
                "| {tasks} | {name} | {rate:.0} | {ratio:.2} | {median:.0} | {late:.0} | {requests:.2} | {server:.0} | {client:.0} | {bar} |"
            );
        }
    }
    Ok(())
}

/// Lets a task for each of these go through cycles for this long, and adds what they did.
async fn measured(subjects: &[Arc<Subject>], time: Duration, cycles: &mut Cycles) -> Outcome {
    let began = Instant::now();
    let run = |subject: &Arc<Subject>| {
        let subject = subject.clone();
        tokio::spawn(async move {
            let mut times = Vec::new();
            while began.elapsed() < time || times.len() < WARM_UP {
                let cycle = Instant::now();
                subject.cycle().await?;
                times.push(cycle.elapsed());
            }
            Outcome::Ok(times)
        })
    };
    let tasks: Vec<_> = subjects.iter().map(run).collect();
    for task in tasks {
        cycles.times.extend(task.await??);
    }
    cycles.took += began.elapsed();
    Ok(())
}
