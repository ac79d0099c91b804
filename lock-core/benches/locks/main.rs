//! `cargo bench -p lock-core`: what the core itself costs, on the store in memory.
//!
//! `cargo bench -p lock-core -- storm` runs one part; `--quick` measures for a fraction of the time. The parts are [`PARTS`].

mod storm;

use std::time::Duration;

/// The parts that can be asked for by name.
const PARTS: [&str; 1] = ["storm"];

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    if let Some(unknown) = args.iter().find(|arg| *arg != "--quick" && !PARTS.contains(&&***arg)) {
        return Err(format!("there is no part {unknown:?}, but {}", PARTS.join(", ")).into());
    }
    runtime.block_on(storm::run(Duration::from_secs(if quick { 2 } else { 10 })))
}
