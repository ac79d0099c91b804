//! Medians, and what this process has used.

use std::time::Duration;

use crate::Outcome;

/// The value at this quantile, in microseconds.
pub(crate) fn micros(times: &mut [Duration], quantile: f64) -> f64 {
    times.sort_unstable();
    let index = (times.len() as f64 * quantile) as usize;
    times.get(index.min(times.len().saturating_sub(1))).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// MiB of memory that this process has in RAM.
pub(crate) fn resident_mib() -> Outcome<f64> {
    Ok(bench_support::resident_bytes()? as f64 / f64::from(1 << 20))
}
