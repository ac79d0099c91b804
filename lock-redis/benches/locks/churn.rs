//! 100,000 lock/release cycles over 10,000 names: what is left in the client's memory and at the server. The baseline is
//! the first tenth of the cycles.

use bench_support::resident_bytes;
use redis::cmd;

use crate::{Bench, Outcome, bare};

const NAMES: usize = 10_000;
const TASKS: usize = 64;

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## 100,000 cycles over {NAMES} names\n");
    println!("| cycles | client MiB | keys that are no last token | last tokens | bytes of one at the server |");
    println!("|---|---|---|---|---|");
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
        let keys: Vec<String> = cmd("KEYS").arg("bench:mutex:{churn *").query_async(&mut connection).await?;
        let tokens = keys.iter().filter(|key| key.ends_with(":f")).count();
        let one: u64 = cmd("MEMORY").arg("USAGE").arg("bench:mutex:{churn 0}:f").query_async(&mut connection).await?;
        println!(
            "| {sum} | {:.1} | {} | {tokens} | {one} |",
            resident_bytes()? as f64 / f64::from(1 << 20),
            keys.len() - tokens
        );
    }
    Ok(())
}
