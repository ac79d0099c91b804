//! Tasks that do the same again and again, each for itself.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::{Outcome, Series};

/// One task's step, done again and again.
pub trait Cycle: Send + 'static {
    /// Once.
    fn go(&mut self) -> impl Future<Output = Outcome> + Send;
}

/// Lets so many tasks run their cycles for this long.
///
/// # Errors
/// The first one of a cycle.
pub async fn for_a_while<C: Cycle>(
    tasks: usize,
    time: Duration,
    series: &mut Series,
    cycle: impl Fn(usize) -> C,
) -> Outcome {
    let start = Instant::now();
    let end = start + time;
    let mut running = Vec::new();
    for task in 0..tasks {
        let mut cycle = cycle(task);
        running.push(tokio::spawn(async move {
            let mut own = Series::new()?;
            while Instant::now() < end {
                let began = Instant::now();
                cycle.go().await?;
                own.record(began.elapsed());
            }
            Outcome::Ok(own)
        }));
    }
    for task in running {
        series.add(&task.await??)?;
    }
    series.time += start.elapsed();
    Ok(())
}
