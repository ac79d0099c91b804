//! 100,000 lock/release cycles over 10,000 names: what is left in the client's memory and at the server. The baseline is
//! the first tenth of the cycles.

use crate::stats::resident_mib;
use crate::{Bench, Outcome};

const NAMES: usize = 10_000;
const TASKS: usize = 64;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## 100,000 cycles over {NAMES} names\n");
    println!("| cycles | client MiB | ephemeral nodes | watches | empty directories, until the server removes them |");
    println!("|---|---|---|---|---|");
    let locks = bench.locks().await?;
    let text = |error: lock_testkit::HarnessError| error.to_string();
    let truth = bench.server.client().await.map_err(text)?;
    for (cycles, sum) in [(NAMES, NAMES), (9 * NAMES, 10 * NAMES)] {
        let mut running = Vec::new();
        for task in 0..TASKS {
            let locks = locks.clone();
            running.push(tokio::spawn(async move {
                for cycle in (task..cycles).step_by(TASKS) {
                    locks.mutex(format!("churn {}", cycle % NAMES)).lock().await?.release().await?;
                }
                Outcome::Ok(())
            }));
        }
        for run in running {
            run.await??;
        }
        let nodes = bench.server.figure("zk_ephemerals_count").await.map_err(text)?;
        let watches = bench.server.figure("zk_watch_count").await.map_err(text)?;
        let directories = truth.children("/bench/mutex").await.map_err(text)?.unwrap_or_default().len();
        println!("| {sum} | {:.1} | {nodes} | {watches} | {directories} |", resident_mib()?);
    }
    Ok(())
}
