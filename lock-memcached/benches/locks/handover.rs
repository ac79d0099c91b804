//! Hand-over between tasks of one process, each grant with its own number at the server: from the call of `release` until
//! the next holder knows, against a round trip.

use bench_support::{Cycle, Hands, Outcome, Series, for_a_while, jain};
use memcache::exp::AsyncMetaClient;

use crate::{Bench, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, one process\n");
    println!("| tasks | variant | median µs | p95 µs | p99 µs | ÷ round trip | hand-overs/s | Jain | bar |");
    println!("|---|---|---|---|---|---|---|---|---|");
    let client = bare::client(bench).await?;
    // With the last number 100 wait.
    for tasks in [2, 16, 64, 101] {
        let mutex = bench.locks().await?.mutex(format!("hand-over {tasks}"));
        let (mut look, mut hands) = (Series::new()?, Hands::new(tasks)?);
        for _ in 0..bench.plan.rounds {
            for_a_while(1, bench.plan.round / 4, &mut look, |_| Look(client.clone())).await?;
            hands.pass(&mutex, bench.plan.round).await?;
        }
        let [median, p95, p99] = [0.5, 0.95, 0.99].map(|share| look.micros(share));
        println!("| {tasks} | one read | {median:.1} | {p95:.1} | {p99:.1} | 1.00 | | | |");
        println!(
            "| {tasks} | lock + release | {:.1} | {:.1} | {:.1} | {:.2} | {:.0} | {:.3} | median ≤ 3, p99 ≤ 5 ms |",
            hands.series.micros(0.5),
            hands.series.micros(0.95),
            hands.series.micros(0.99),
            hands.series.micros(0.5) / look.micros(0.5),
            hands.series.per_second(),
            jain(&hands.shares)
        );
    }
    Ok(())
}

struct Look(AsyncMetaClient);

impl Cycle for Look {
    async fn go(&mut self) -> Outcome {
        bare::look(&self.0, "bench:mutex:hand-over").await
    }
}
