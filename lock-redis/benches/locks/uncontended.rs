//! Lock and release of free locks, each task its own name, against the bare pair and against two empty scripts.

use std::time::Duration;

use bench_support::{Cycle, Series, cpu_seconds, for_a_while};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use redis::aio::MultiplexedConnection;

use crate::ours::Ours;
use crate::{Bench, Outcome, bare};

/// The round trip to a server that is far away.
const FAR: Duration = Duration::from_millis(20);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release\n");
    table(bench, &[1, 64, 1000]).await
}

/// Measures the same at a server that is far away, over a link that all variants share.
pub(crate) async fn far(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release, round trip {FAR:?}\n");
    let link = Proxy::to(bench.url.trim_start_matches("redis://").trim_end_matches('/'), Protocol::Resp)?;
    let delay = Toxic::Delay { by: FAR / 2, jitter: Duration::ZERO };
    let _delayed = link.inject(LinkFault::new(delay, Direction::Both));
    table(&Bench { url: format!("redis://{}", link.address()), ..bench.clone() }, &[1, 64]).await
}

async fn table(bench: &Bench, tasks: &[usize]) -> Outcome {
    println!(
        "| tasks | variant | median µs | p99 µs | cycles/s | latency ÷ pair | p99 ÷ pair | rate ÷ pair | \
        rate ÷ two scripts | server µs of CPU a cycle | client µs |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for tasks in tasks.iter().copied() {
        let [pair, scripts, ours] = measure(bench, tasks).await?;
        for (name, Measured { series, cpu }) in
            [("SET NX PX + EVALSHA", &pair), ("two EVALSHA of our length", &scripts), ("lock + release", &ours)]
        {
            let [server, client] = cpu.map(|seconds| seconds * 1e6 / series.count as f64);
            println!(
                "| {tasks} | {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {server:.1} | {client:.1} |",
                series.micros(0.5),
                series.micros(0.99),
                series.per_second(),
                series.micros(0.5) / pair.series.micros(0.5),
                series.micros(0.99) / pair.series.micros(0.99),
                series.per_second() / pair.series.per_second(),
                series.per_second() / scripts.series.per_second(),
            );
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, tasks: usize) -> Outcome<[Measured; 3]> {
    let mut connection = bare::connection(bench).await?;
    let server = bare::server_pid(&mut connection).await?;
    let compare = bare::load(&mut connection, bare::COMPARE_AND_DELETE).await?;
    let nothing = bare::load(&mut connection, "return string.sub(ARGV[1], 1, 32) .. '+1795228324443725'").await?;
    let locks = bench.locks().await?;
    let mut all = [Measured::new()?, Measured::new()?, Measured::new()?];
    for _ in 0..bench.rounds {
        let [pair, scripts, ours] = &mut all;
        let bare = |digest: &String, key: String, task| Bare {
            connection: connection.clone(),
            digest: digest.clone(),
            key,
            token: format!("{task:032}"),
        };
        pair.add(server, async |series| {
            for_a_while(tasks, bench.round, series, |task| Without::Pair(bare(&compare, format!("pair:{task}"), task)))
                .await
        })
        .await?;
        let key = |task| format!("bench:mutex:{{task {task}}}");
        scripts
            .add(server, async |series| {
                for_a_while(tasks, bench.round, series, |task| Without::Scripts(bare(&nothing, key(task), task))).await
            })
            .await?;
        ours.add(server, async |series| {
            for_a_while(tasks, bench.round, series, |task| Ours::Mutex(locks.mutex(format!("task {task}")))).await
        })
        .await?;
    }
    Ok(all)
}

/// Cycles, and the CPU time that they took at the server and in this process: that of another load is not in it.
struct Measured {
    series: Series,
    cpu: [f64; 2],
}

impl Measured {
    fn new() -> Outcome<Self> {
        Ok(Self { series: Series::new()?, cpu: [0.0; 2] })
    }

    async fn add(&mut self, server: u32, measure: impl AsyncFnOnce(&mut Series) -> Outcome) -> Outcome {
        let used = || Outcome::Ok([cpu_seconds(server)?, cpu_seconds(std::process::id())?]);
        let before = used()?;
        measure(&mut self.series).await?;
        let after = used()?;
        self.cpu = std::array::from_fn(|i| self.cpu[i] + after[i] - before[i]);
        Ok(())
    }
}

/// The loop of one task without a lock library.
enum Without {
    Pair(Bare),
    Scripts(Bare),
}

struct Bare {
    connection: MultiplexedConnection,
    digest: String,
    key: String,
    token: String,
}

impl Cycle for Without {
    async fn go(&mut self) -> Outcome {
        match self {
            Self::Pair(Bare { connection, digest, key, token }) => bare::pair(connection, digest, key, token).await,
            Self::Scripts(Bare { connection, digest, key, token }) => {
                bare::two_scripts(connection, digest, key, token).await
            }
        }
    }
}
