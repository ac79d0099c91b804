//! Latencies, rates and shares.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Outcome;

/// Latencies in nanoseconds, and how many operations fitted into how much time.
#[derive(Debug, Clone)]
pub struct Series {
    latency: Histogram<u64>,
    /// The number of operations.
    pub count: u64,
    /// The time that they took in all.
    pub time: Duration,
}

impl Series {
    /// An empty one.
    ///
    /// # Errors
    /// None that is known; the histogram's own.
    pub fn new() -> Outcome<Self> {
        Ok(Self { latency: Histogram::new(3)?, count: 0, time: Duration::ZERO })
    }

    /// One operation more, which took so long.
    pub fn record(&mut self, latency: Duration) {
        // A histogram that resizes itself refuses no value below 2^63.
        let _ = self.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.count += 1;
    }

    /// Takes another one's operations; not its time, which went by beside this one's.
    ///
    /// # Errors
    /// None that is known; the histogram's own.
    pub fn add(&mut self, other: &Self) -> Outcome {
        self.latency.add(&other.latency)?;
        self.count += other.count;
        Ok(())
    }

    /// Microseconds at this quantile.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for tables")]
    pub fn micros(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Operations in a second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for tables")]
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Jain's index of fairness: 1 if all shares are equal, 1/n if one has everything.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "for tables")]
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_tells_its_quantiles_and_its_rate() {
        let mut series = Series::new().unwrap();
        (1..=100).for_each(|milliseconds| series.record(Duration::from_millis(milliseconds)));
        series.time = Duration::from_secs(2);
        assert!((49_000.0..=51_000.0).contains(&series.micros(0.5)), "{}", series.micros(0.5));
        assert!((series.per_second() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn jain_tells_equal_shares_from_a_single_one() {
        assert!((jain(&[7, 7, 7, 7]) - 1.0).abs() < 1e-9);
        assert!((jain(&[7, 0, 0, 0]) - 0.25).abs() < 1e-9);
    }
}
