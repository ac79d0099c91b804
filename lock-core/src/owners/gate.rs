//! The gate of one owner: one of its tasks asks the server, and the others wait here.
//!
//! A future that waits for the gate, or has it, may be left lying without being polled. Whoever has the gate gives a sign of life now and
//! then, so that those behind it find out, and ask for themselves.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use crate::clock::{BootInstant, Clock};
use crate::driver::wait;
use crate::sync::locked;

/// The time beyond an operation timeout after which a gate without a sign of life is abandoned.
const SILENT: Duration = Duration::from_secs(1);

/// The gate.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    turn: tokio::sync::Mutex<()>,
    /// The instant of the last sign of life.
    alive_at: Mutex<Option<BootInstant>>,
}

/// The turn to ask the server, until it is dropped.
pub(crate) struct GateTurn<'a> {
    gate: &'a Gate,
    clock: &'a dyn Clock,
    _turn: tokio::sync::MutexGuard<'a, ()>,
}

impl Gate {
    /// Passes the gate if nobody has it or waits for it.
    pub(crate) fn try_pass<'a>(&'a self, clock: &'a dyn Clock) -> Option<GateTurn<'a>> {
        self.turn.try_lock().ok().map(|turn| GateTurn::new(self, clock, turn))
    }

    /// Waits for the turn; `None` if whoever has it gives no sign of life for an operation timeout and a second, from this call on.
    ///
    /// # Cancel safety
    /// Dropping it leaves the place at the gate.
    pub(crate) async fn pass<'a>(&'a self, clock: &'a dyn Clock, op_timeout: Duration) -> Option<GateTurn<'a>> {
        let mut turn = pin!(self.turn.lock());
        // Nobody could give a sign while the process stood still.
        let mut earliest = clock.now();
        let abandoned_at =
            |earliest| locked(&self.alive_at).max(Some(earliest)).unwrap_or(earliest).plus(op_timeout).plus(SILENT);
        loop {
            let due = abandoned_at(earliest);
            tokio::select! {
                biased;
                turn = &mut turn => return Some(GateTurn::new(self, clock, turn)),
                () = clock.sleep_until(due) => {}
            }
            // Of two that are woken at once, the one that gives the sign may come second.
            tokio::task::yield_now().await;
            let now = clock.now();
            if wait::stood_still(due, now) {
                earliest = now;
            } else if abandoned_at(earliest) <= now {
                return None;
            }
        }
    }

    fn give_sign(&self, now: BootInstant) {
        let mut alive_at = locked(&self.alive_at);
        *alive_at = (*alive_at).max(Some(now));
    }
}

impl<'a> GateTurn<'a> {
    /// Gives signs of life until this is dropped.
    pub(crate) async fn keep_alive(&self, op_timeout: Duration) -> Infallible {
        loop {
            let now = self.clock.now();
            self.gate.give_sign(now);
            self.clock.sleep_until(now.plus(op_timeout / 2)).await;
        }
    }

    fn new(gate: &'a Gate, clock: &'a dyn Clock, turn: tokio::sync::MutexGuard<'a, ()>) -> Self {
        gate.give_sign(clock.now());
        Self { gate, clock, _turn: turn }
    }
}

impl Drop for GateTurn<'_> {
    /// Leaves the time of a sign of life to the next one, which has the turn from now on and may not be polled yet.
    fn drop(&mut self) {
        self.gate.give_sign(self.clock.now());
    }
}
