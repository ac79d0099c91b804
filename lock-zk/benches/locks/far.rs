//! Lock and release of free names at a server that is far away, beside the requests that they need.

use std::time::Duration;

use bench_support::{Cycle, Outcome, Series, for_a_while};
use lock_testkit::proxy::{Direction, LinkFault, Protocol, Proxy, Toxic};
use lock_zk::Mutex;

use crate::Bench;
use crate::plain::Plain;

/// The round trip.
const FAR: Duration = Duration::from_millis(20);

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release, round trip {FAR:?}\n");
    println!("| tasks | variant | median µs | p99 µs | cycles/s | latency ÷ textbook | p99 ÷ textbook | bar |");
    println!("|---|---|---|---|---|---|---|---|");
    let link = Proxy::to(bench.server.url().trim_start_matches("zk://"), Protocol::ZooKeeper)?;
    let delay = Toxic::Delay { by: FAR / 2, jitter: Duration::ZERO };
    let _delayed = link.inject(LinkFault::new(delay, Direction::Both));
    let plain = Plain::connect_to(&link.address().to_string(), "/plain/far").await?;
    let locks = crate::locks(&format!("zk://{}", link.address()), Duration::from_secs(10)).await?;
    for (tasks, bar) in [(1, "≤ 1.02; 1.10"), (64, "≤ 1.05; 1.10")] {
        for task in 0..tasks {
            plain.below(task).make().await?;
        }
        let mut all = [Series::new()?, Series::new()?];
        for _ in 0..bench.rounds {
            let [textbook, ours] = &mut all;
            for_a_while(tasks, bench.round, textbook, |task| Variant::Textbook(plain.below(task))).await?;
            for_a_while(tasks, bench.round, ours, |task| Variant::Ours(locks.mutex(format!("far {task}")))).await?;
        }
        for ((name, bar), series) in [("create + getChildren, delete", ""), ("lock + release", bar)].iter().zip(&all) {
            println!(
                "| {tasks} | {name} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {bar} |",
                series.micros(0.5),
                series.micros(0.99),
                series.per_second(),
                series.micros(0.5) / all[0].micros(0.5),
                series.micros(0.99) / all[0].micros(0.99),
            );
        }
    }
    Ok(())
}

enum Variant {
    Textbook(Plain),
    Ours(Mutex),
}

impl Cycle for Variant {
    async fn go(&mut self) -> Outcome {
        match self {
            Self::Textbook(plain) => plain.cycle().await,
            Self::Ours(mutex) => Ok(mutex.lock().await?.release().await?),
        }
    }
}
