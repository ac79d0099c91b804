//! A client's first grant on a server that is no longer new: from nothing to a lock.

use std::time::Instant;

use bench_support::{Outcome, Series};
use lock_memcached::RestartPolicy;

use crate::{Bench, bare, fresh};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Connect and the first grant\n");
    println!("| variant | median µs | 90 % µs | ÷ bare |");
    println!("|---|---|---|---|");
    // A new server grants nothing until the leases of a former one would be over.
    bench.locks().await?;
    let (mut plain, mut ours) = (Series::new()?, Series::new()?);
    for turn in 0..20 * bench.plan.rounds {
        let began = Instant::now();
        let client = bare::client(bench).await?;
        bare::pair(&client, &format!("bench:connect:{turn}")).await?;
        plain.record(began.elapsed());

        let began = Instant::now();
        let locks = fresh(bench.server.url(), RestartPolicy::Quarantine).await?;
        let guard = locks.mutex("connect").lock().await?;
        ours.record(began.elapsed());
        guard.release().await?;
    }
    for (name, series) in [("client, claim + delete", &plain), ("connect, lock", &ours)] {
        let ratio = series.micros(0.5) / plain.micros(0.5);
        println!("| {name} | {:.0} | {:.0} | {ratio:.2} |", series.micros(0.5), series.micros(0.9));
    }
    Ok(())
}
