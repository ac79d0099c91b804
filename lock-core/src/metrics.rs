//! The meters, through the `metrics` facade.
//!
//! The handles are made once per client, when it is connected: install the recorder before. Without a recorder each is
//! empty and costs a branch.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::lease::LossReason;

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
    losses: [Counter; 4],
}

impl Meters {
    pub(crate) fn new(backend: &'static str) -> Self {
        let losses = ["expired", "session_expired", "taken", "force_released"]
            .map(|reason| counter!("lock_losses_total", "backend" => backend, "reason" => reason));
        Self {
            wait: histogram!("lock_wait_seconds", "backend" => backend),
            wake_to_grant: histogram!("lock_wake_to_grant_seconds", "backend" => backend),
            hold: histogram!("lock_hold_seconds", "backend" => backend),
            margin: histogram!("lock_renewal_margin_seconds", "backend" => backend),
            grants: counter!("lock_grants_total", "backend" => backend),
            refusals: counter!("lock_refusals_total", "backend" => backend),
            renewal_failures: counter!("lock_renewal_failures_total", "backend" => backend),
            losses,
        }
    }

    pub(crate) fn granted(&self, wait: Duration) {
        self.grants.increment(1);
        self.wait.record(wait.as_secs_f64());
    }

    /// Time from the push that woke a waiter until its guard.
    pub(crate) fn woken(&self, latency: Duration) {
        self.wake_to_grant.record(latency.as_secs_f64());
    }

    pub(crate) fn refused(&self) {
        self.refusals.increment(1);
    }

    pub(crate) fn released(&self, hold: Duration) {
        self.hold.record(hold.as_secs_f64());
    }

    /// Time that was left on the old lease when a renewal was confirmed.
    pub(crate) fn margin(&self, left: Duration) {
        self.margin.record(left.as_secs_f64());
    }

    pub(crate) fn renewal_failed(&self) {
        self.renewal_failures.increment(1);
    }

    pub(crate) fn lost(&self, reason: &LossReason) {
        let index = match reason {
            LossReason::Expired => 0,
            LossReason::SessionExpired => 1,
            LossReason::Taken => 2,
            LossReason::ForceReleased { .. } => 3,
        };
        self.losses[index].increment(1);
    }
}

impl std::fmt::Debug for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meters")
    }
}
