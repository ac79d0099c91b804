//! Reads what a client counts through the `metrics` facade.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

/// Everything that was counted or measured while clients were made under it, by name and labels without the backend's:
/// `lock_losses_total{reason=taken}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meter(Arc<Mutex<HashMap<String, Arc<Series>>>>);

/// The values of one counter (its increments) or histogram, in order.
#[derive(Debug, Default)]
struct Series(Mutex<Vec<f64>>);

impl Meter {
    /// Makes a client, so that this is the recorder that it finds.
    pub(crate) async fn under<F: Future>(&self, connecting: F) -> F::Output {
        let mut connecting = pin!(connecting);
        std::future::poll_fn(|cx| metrics::with_local_recorder(self, || connecting.as_mut().poll(cx))).await
    }

    /// The total of a counter.
    pub(crate) fn total(&self, name: &str) -> f64 {
        self.values(name).iter().sum()
    }

    /// Returns the measurements, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<f64> {
        locked(&self.0).get(name).map(|series| locked(&series.0).clone()).unwrap_or_default()
    }

    fn series(&self, key: &Key) -> Arc<Series> {
        let labels = key.labels().filter(|label| label.key() != "backend");
        let labels: Vec<_> = labels.map(|label| format!("{}={}", label.key(), label.value())).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        locked(&self.0).entry(format!("{}{labels}", key.name())).or_default().clone()
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.series(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.series(key))
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        #[expect(clippy::cast_precision_loss, reason = "the counts of a case are small")]
        locked(&self.0).push(value as f64);
    }

    fn absolute(&self, value: u64) {
        locked(&self.0).clear();
        self.increment(value);
    }
}

impl HistogramFn for Series {
    fn record(&self, value: f64) {
        locked(&self.0).push(value);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves its data valid after each statement.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
