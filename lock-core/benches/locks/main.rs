//! `cargo bench -p lock-core`: what the core itself costs, on the store in memory.
//!
//! `cargo bench -p lock-core -- storm` runs one part; `--quick` measures for a fraction of the time. The parts are [`PARTS`].

mod crowd;
mod pair;
mod storm;

use std::time::Duration;

/// The parts that can be asked for by name.
const PARTS: [&str; 3] = ["pair", "crowd", "storm"];

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    if let Some(unknown) = args.iter().find(|arg| *arg != "--quick" && !PARTS.contains(&&***arg)) {
        return Err(format!("there is no part {unknown:?}, but {}", PARTS.join(", ")).into());
    }
    let wanted: Vec<_> = args.iter().filter(|arg| *arg != "--quick").collect();
    let wants = |part| wanted.is_empty() || wanted.iter().any(|wanted| *wanted == part);
    runtime.block_on(async {
        if wants("pair") {
            pair::run(Duration::from_millis(if quick { 200 } else { 1000 })).await?;
        }
        if wants("crowd") {
            crowd::run(if quick { &[100, 1000] } else { &[100, 1000, 10_000, 30_000] }).await?;
        }
        if wants("storm") {
            storm::run(Duration::from_secs(if quick { 2 } else { 10 })).await?;
        }
        Ok(())
    })
}
