//! Histograms and rates, and what the server and this process have used.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Outcome;

/// Latencies in nanoseconds, and how many operations fitted into how much time.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) latency: Histogram<u64>,
    pub(crate) count: u64,
    pub(crate) time: Duration,
}

impl Series {
    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self { latency: Histogram::new(3)?, count: 0, time: Duration::ZERO })
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        // A histogram that resizes itself refuses no value below 2^63.
        let _ = self.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.count += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) -> Outcome {
        self.latency.add(&other.latency)?;
        self.count += other.count;
        Ok(())
    }

    /// Microseconds at this quantile.
    pub(crate) fn micros(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Seconds of processor time that a process has used, from `/proc`.
pub(crate) fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").ok_or("no name in stat")?.1;
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

/// Bytes of memory that this process has in RAM.
pub(crate) fn resident_bytes() -> Outcome<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("no second field in statm")?.parse()?;
    Ok(pages * 4096)
}
