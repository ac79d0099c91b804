//! Lock and release of a free name, by one task, beside the three requests that it needs.

use std::time::Instant;

use crate::plain::Plain;
use crate::stats::micros;
use crate::{Bench, Outcome};

/// Cycles of one variant before the other one has its turn.
const BLOCK: usize = 40;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Uncontended lock + release, one task\n");
    println!("| variant | median µs | 90 % µs | ÷ raw | bar |\n|---|---|---|---|---|");
    let (plain, locks) = (Plain::connect(bench, "/plain/uncontended").await?, bench.locks().await?);
    let mutex = locks.mutex("uncontended");
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    // The server's compiler takes its time.
    let warm = Instant::now() + bench.round;
    while Instant::now() < warm {
        plain.cycle().await?;
        mutex.lock().await?.release().await?;
    }
    let end = Instant::now() + bench.round * bench.rounds * 2;
    while Instant::now() < end {
        for _ in 0..BLOCK {
            let began = Instant::now();
            plain.cycle().await?;
            raw.push(began.elapsed());
        }
        for _ in 0..BLOCK {
            let began = Instant::now();
            mutex.lock().await?.release().await?;
            ours.push(began.elapsed());
        }
    }
    let (base, own) = (micros(&mut raw, 0.5), micros(&mut ours, 0.5));
    println!("| create + getChildren, delete | {base:.0} | {:.0} | 1.00 | |", micros(&mut raw, 0.9));
    println!("| lock + release | {own:.0} | {:.0} | {:.2} | ≤ 1.15 |", micros(&mut ours, 0.9), own / base);
    Ok(())
}
