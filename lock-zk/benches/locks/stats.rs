//! Medians, shares, and what this process has used.

use std::time::Duration;

use crate::Outcome;

/// The value at this quantile, in microseconds.
pub(crate) fn micros(times: &mut [Duration], quantile: f64) -> f64 {
    times.sort_unstable();
    let index = (times.len() as f64 * quantile) as usize;
    times.get(index.min(times.len().saturating_sub(1))).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has everything.
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// MiB of memory that this process has in RAM.
pub(crate) fn resident_mib() -> Outcome<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("no second field in statm")?.parse()?;
    Ok(pages as f64 / 256.0)
}
