//! A client's first grant: from nothing to a lock, and to the lock released.

use std::time::Instant;

use bench_support::Series;

use crate::{Bench, Outcome, bare};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Connect and the first grant\n");
    println!("| variant | median µs | 90 % µs | ÷ bare |");
    println!("|---|---|---|---|");
    let (mut plain, mut ours) = (Series::new()?, Series::new()?);
    for _ in 0..20 * bench.rounds {
        let began = Instant::now();
        let mut connection = bare::connection(bench).await?;
        let set = redis::cmd("SET").arg("bench:connect").arg(1).arg("NX").arg("PX").arg(10_000).take();
        let answer: Option<String> = set.query_async(&mut connection).await?;
        plain.record(began.elapsed());
        answer.ok_or("the key is taken")?;
        let _: u64 = redis::cmd("DEL").arg("bench:connect").query_async(&mut connection).await?;

        let began = Instant::now();
        let locks = bench.locks().await?;
        let guard = locks.mutex("connect").lock().await?;
        ours.record(began.elapsed());
        guard.release().await?;
    }
    for (name, series) in [("connection, SET NX PX", &plain), ("connect, lock", &ours)] {
        let ratio = series.micros(0.5) / plain.micros(0.5);
        println!("| {name} | {:.0} | {:.0} | {ratio:.2} |", series.micros(0.5), series.micros(0.9));
    }
    Ok(())
}
