//! Hand-over between tasks of one process: from the call of `release` until the next holder knows.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Outcome, Series};

/// The measurements so far of tasks that take turns.
#[derive(Debug)]
pub struct Hands {
    /// The time that each hand-over took.
    pub series: Series,
    /// The number of turns that each task had.
    pub shares: Vec<u64>,
    /// The number of requests, if they were counted.
    pub requests: u64,
}

impl Hands {
    /// Nothing yet of so many tasks.
    ///
    /// # Errors
    /// None that is known; the histogram's own.
    pub fn new(tasks: usize) -> Outcome<Self> {
        Ok(Self { series: Series::new()?, shares: vec![0; tasks], requests: 0 })
    }

    /// Takes what one task has measured.
    ///
    /// # Errors
    /// None that is known; the histogram's own.
    pub fn add(&mut self, task: usize, own: &Series) -> Outcome {
        self.shares[task] += own.count;
        self.series.add(own)
    }

    /// Lets the tasks take turns at this lock for so long.
    ///
    /// # Errors
    /// The first one of an acquisition or a release.
    pub async fn pass(&mut self, mutex: &lock_core::Mutex, time: Duration) -> Outcome {
        let (baton, start) = (Baton::default(), Instant::now());
        let end = start + time;
        let mut running = Vec::new();
        for _ in 0..self.shares.len() {
            let (mutex, baton) = (mutex.clone(), baton.clone());
            running.push(tokio::spawn(async move {
                let mut own = Series::new()?;
                while Instant::now() < end {
                    let guard = mutex.lock().await?;
                    baton.taken(&mut own);
                    baton.passing();
                    guard.release().await?;
                }
                Outcome::Ok(own)
            }));
        }
        for (task, run) in running.into_iter().enumerate() {
            self.add(task, &run.await??)?;
        }
        self.series.time += start.elapsed();
        Ok(())
    }
}

/// The instant at which the present or last holder began to release.
#[derive(Debug, Clone, Default)]
pub struct Baton(Arc<Mutex<Option<Instant>>>);

impl Baton {
    /// The holder begins to release now.
    pub fn passing(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The next one holds now.
    pub fn taken(&self, series: &mut Series) {
        let passed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(passed) = passed {
            series.record(passed.elapsed());
        }
    }
}
