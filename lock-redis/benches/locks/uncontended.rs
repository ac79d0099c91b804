//! Lock and release of free locks, each task its own name, against the bare pair and against two empty scripts.

use bench_support::{Cycle, Series, for_a_while};
use redis::aio::MultiplexedConnection;

use crate::ours::Ours;
use crate::{Bench, Outcome, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release\n");
    println!("| tasks | variant | median µs | p99 µs | cycles/s | latency ÷ pair | rate ÷ pair | rate ÷ two scripts |");
    println!("|---|---|---|---|---|---|---|---|");
    for tasks in [1, 64, 1000] {
        let [pair, scripts, ours] = measure(bench, tasks).await?;
        for (name, series) in
            [("SET NX PX + EVALSHA", &pair), ("two EVALSHA of our length", &scripts), ("lock + release", &ours)]
        {
            println!(
                "| {tasks} | {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:.2} |",
                series.micros(0.5),
                series.micros(0.99),
                series.per_second(),
                series.micros(0.5) / pair.micros(0.5),
                series.per_second() / pair.per_second(),
                series.per_second() / scripts.per_second(),
            );
        }
    }
    Ok(())
}

async fn measure(bench: &Bench, tasks: usize) -> Outcome<[Series; 3]> {
    let mut connection = bare::connection(bench).await?;
    let compare = bare::load(&mut connection, bare::COMPARE_AND_DELETE).await?;
    let nothing = bare::load(&mut connection, "return string.sub(ARGV[1], 1, 32) .. '+1795228324443725'").await?;
    let locks = bench.locks().await?;
    let mut all = [Series::new()?, Series::new()?, Series::new()?];
    for _ in 0..bench.rounds {
        let [pair, scripts, ours] = &mut all;
        let bare = |digest: &String, key: String, task| Bare {
            connection: connection.clone(),
            digest: digest.clone(),
            key,
            token: format!("{task:032}"),
        };
        for_a_while(tasks, bench.round, pair, |task| Without::Pair(bare(&compare, format!("pair:{task}"), task)))
            .await?;
        let key = |task| format!("bench:mutex:{{task {task}}}");
        for_a_while(tasks, bench.round, scripts, |task| Without::Scripts(bare(&nothing, key(task), task))).await?;
        for_a_while(tasks, bench.round, ours, |task| Ours::Mutex(locks.mutex(format!("task {task}")))).await?;
    }
    Ok(all)
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
