//! The meters, through the `metrics` facade.
//!
//! The handles are made once per client, when it is connected: install the recorder before. Without a recorder each is
//! empty and costs a branch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::error::ErrorKind;
use crate::loss::LossReason;

/// The meters of one client.
#[derive(Clone)]
pub(crate) struct Meters {
    wait: Histogram,
    wake_to_grant: Histogram,
    hold: Histogram,
    margin: Histogram,
    grants: Counter,
    refusals: Counter,
    renewal_failures: Counter,
    cleanups_given_up: Counter,
    losses: [Counter; 4],
    errors: [(ErrorKind, Counter); ErrorKind::ALL.len()],
}

impl Meters {
    pub(crate) fn new(backend: &'static str) -> Self {
        let losses = ["expired", "session_expired", "taken", "force_released"]
            .map(|reason| counter!("lock_losses_total", "backend" => backend, "reason" => reason));
        let error = |kind: ErrorKind| {
            let text = kind.to_string().replace(' ', "_");
            (kind, counter!("lock_acquire_errors_total", "backend" => backend, "kind" => text))
        };
        Self {
            wait: histogram!("lock_wait_seconds", "backend" => backend),
            wake_to_grant: histogram!("lock_wake_to_grant_seconds", "backend" => backend),
            hold: histogram!("lock_hold_seconds", "backend" => backend),
            margin: histogram!("lock_renewal_margin_seconds", "backend" => backend),
            grants: counter!("lock_grants_total", "backend" => backend),
            refusals: counter!("lock_refusals_total", "backend" => backend),
            renewal_failures: counter!("lock_renewal_failures_total", "backend" => backend),
            cleanups_given_up: counter!("lock_cleanups_given_up_total", "backend" => backend),
            losses,
            errors: ErrorKind::ALL.map(error),
        }
    }

    pub(crate) fn granted(&self, wait: Duration) {
        tell(|| {
            self.grants.increment(1);
            self.wait.record(wait.as_secs_f64());
        });
    }

    /// Time from the push that woke a waiter until its guard.
    pub(crate) fn woken(&self, latency: Duration) {
        tell(|| self.wake_to_grant.record(latency.as_secs_f64()));
    }

    pub(crate) fn refused(&self) {
        tell(|| self.refusals.increment(1));
    }

    /// An acquisition that ended with an error.
    pub(crate) fn failed(&self, kind: ErrorKind) {
        if let Some((_, counter)) = self.errors.iter().find(|(of, _)| *of == kind) {
            tell(|| counter.increment(1));
        }
    }

    /// A hold that has ended, by a release or a loss.
    pub(crate) fn held(&self, hold: Duration) {
        tell(|| self.hold.record(hold.as_secs_f64()));
    }

    /// Time that was left on the old lease when a renewal was confirmed.
    pub(crate) fn margin(&self, left: Duration) {
        tell(|| self.margin.record(left.as_secs_f64()));
    }

    pub(crate) fn renewal_failed(&self) {
        tell(|| self.renewal_failures.increment(1));
    }

    pub(crate) fn cleanup_given_up(&self) {
        tell(|| self.cleanups_given_up.increment(1));
    }

    pub(crate) fn lost(&self, reason: &LossReason) {
        let index = match reason {
            LossReason::Expired => 0,
            LossReason::SessionExpired => 1,
            LossReason::Taken => 2,
            LossReason::ForceReleased { .. } => 3,
        };
        tell(|| self.losses[index].increment(1));
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}

/// Tells the recorder something. One that panics has not heard it, and costs no lock: it is told in the background, and while
/// guards are dropped.
fn tell(meter: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(meter));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metrics::{CounterFn, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use crate::memory::MemoryStore;

    /// A recorder whose meters all panic.
    #[derive(Debug)]
    struct Mistaken;

    impl CounterFn for Mistaken {
        fn increment(&self, _: u64) {
            panic!("a mistake in the recorder, planted by the test");
        }

        fn absolute(&self, _: u64) {}
    }

    impl HistogramFn for Mistaken {
        fn record(&self, _: f64) {
            panic!("a mistake in the recorder, planted by the test");
        }
    }

    impl Recorder for Mistaken {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> metrics::Counter {
            metrics::Counter::from_arc(Arc::new(Self))
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> metrics::Histogram {
            metrics::Histogram::from_arc(Arc::new(Self))
        }
    }

    #[tokio::test]
    async fn a_recorder_that_panics_costs_no_lock() {
        let store = MemoryStore::new();
        let locks = metrics::with_local_recorder(&Mistaken, || store.connect());
        let (kept, lost) = (locks.mutex("kept").lock().await.unwrap(), locks.mutex("lost").lock().await.unwrap());
        store.lose("lost");
        assert_eq!(lost.lost().await, crate::LossReason::Taken);
        drop(kept);
        locks.close().await.unwrap();
        assert_eq!(store.used(), 0);
    }
}
