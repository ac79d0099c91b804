//! 100,000 lock/release cycles over 10,000 names: what is left in the client's memory and at the server. The baseline is
//! the first tenth of the cycles.

use bench_support::resident_bytes;
use redis::cmd;

use crate::{Bench, Outcome, bare};

const NAMES: usize = 10_000;
const TASKS: usize = 64;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## 100,000 cycles over {NAMES} names\n");
    println!("| cycles | client MiB | keys at the server, with the counter of tokens | bytes of the counter |");
    println!("|---|---|---|---|");
    let mut connection = bare::connection(bench).await?;
    let locks = bench.locks().await?;
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
        let keys: Vec<String> = cmd("KEYS").arg("bench:*").query_async(&mut connection).await?;
        let left = keys.iter().filter(|key| key.contains("{churn ") || *key == "bench:tokens").count();
        let counter: u64 = cmd("MEMORY").arg("USAGE").arg("bench:tokens").query_async(&mut connection).await?;
        let resident = resident_bytes()? as f64 / f64::from(1 << 20);
        println!("| {sum} | {resident:.1} | {left} | {counter} |");
    }
    Ok(())
}
