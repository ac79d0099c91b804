//! Turns of many tasks at one name, and the requests that they cost.

use std::time::{Duration, Instant};

use crate::{Bench, Outcome};

/// The number of tasks.
pub(crate) const TASKS: usize = 64;

/// Turns and requests, and the time that they took.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) count: u64,
    pub(crate) requests: u64,
    pub(crate) time: Duration,
}

impl Turns {
    pub(crate) fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Runs a variant, and counts its requests.
pub(crate) async fn measure(bench: &Bench, turns: &mut Turns, run: impl AsyncFnOnce() -> Outcome<u64>) -> Outcome {
    let (before, began) = (bench.requests().await?, Instant::now());
    turns.count = run().await?;
    turns.time = began.elapsed();
    turns.requests = bench.requests().await? - before;
    Ok(())
}
