//! A client's first grant: from nothing to a lock.

use std::time::Instant;

use crate::plain::Plain;
use crate::stats::micros;
use crate::{Bench, Outcome};

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Connect and the first grant\n");
    println!("| variant | median µs | 90 % µs | ÷ raw |\n|---|---|---|---|");
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for turn in 0..20 * bench.rounds {
        let began = Instant::now();
        let plain = Plain::connect(bench, "/plain/connect").await?;
        plain.cycle().await?;
        let plain_took = began.elapsed();

        let began = Instant::now();
        let locks = bench.locks().await?;
        let guard = locks.mutex("connect").lock().await?;
        let took = began.elapsed();
        guard.release().await?;
        locks.close().await?;
        // The first ones make directories, and the server's compiler takes its time.
        if turn >= bench.rounds {
            raw.push(plain_took);
            ours.push(took);
        }
    }
    let base = micros(&mut raw, 0.5);
    for (name, times) in [("session, create + getChildren, delete", &mut raw), ("connect, lock", &mut ours)] {
        let median = micros(times, 0.5);
        println!("| {name} | {median:.0} | {:.0} | {:.2} |", micros(times, 0.9), median / base);
    }
    Ok(())
}
