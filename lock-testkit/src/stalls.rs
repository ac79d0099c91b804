//! Whether the machine itself stood still.
//!
//! A case about time has a premise: that the machine runs. On a shared virtual machine that is not always so; all of it
//! may stand still for a second, and a lease that nobody could renew ends, as it must. A thread that wants nothing but
//! to run every 10 ms notices it: nothing that a backend does, short of taking every processor, can hold it up.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};

/// The shortest standstill that counts.
const STALL: Duration = Duration::from_millis(250);
/// How long the monitor sleeps between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);
/// How long a question waits for the monitor's next look.
const NEXT_LOOK: Duration = Duration::from_secs(2);

/// For how long the machine runs until it counts as calm again.
const CALM: Duration = Duration::from_secs(2);
/// How long is waited for that.
const STORM: Duration = Duration::from_secs(30);

/// The present instant, from which on the machine is watched.
pub(crate) fn watch() -> BootInstant {
    LazyLock::force(&RECORD);
    SystemClock.now()
}

/// For how long the machine stood still at a stretch since then, if it is proven that it did.
pub(crate) fn since(began: BootInstant) -> Option<Duration> {
    let ended = SystemClock.now();
    // A standstill that ends now has been noticed here before the monitor could.
    while RECORD.lock().unwrap_or_else(PoisonError::into_inner).looked_at < ended
        && SystemClock.now().since(ended) < NEXT_LOOK
    {
        thread::sleep(STEP);
    }
    RECORD.lock().unwrap_or_else(PoisonError::into_inner).longest(began, ended)
}

/// Waits until the machine has run for a while: a run anew in the midst of the same storm would say as little.
pub(crate) fn calm_down() {
    let began = SystemClock.now();
    while SystemClock.now().since(began) < STORM {
        let from = SystemClock.now();
        thread::sleep(CALM);
        if since(from).is_none() {
            break;
        }
    }
}

static RECORD: LazyLock<Mutex<Record>> = LazyLock::new(|| {
    // Without the thread no standstill is ever proven: every failure counts.
    let _ = thread::Builder::new().name("stalls".to_owned()).spawn(|| {
        loop {
            thread::sleep(STEP);
            RECORD.lock().unwrap_or_else(PoisonError::into_inner).look(SystemClock.now());
        }
    });
    Mutex::new(Record::from(SystemClock.now()))
});

/// When the monitor did not run.
#[derive(Debug)]
struct Record {
    looked_at: BootInstant,
    /// Beginning and end of each standstill.
    stalls: Vec<(BootInstant, BootInstant)>,
}

impl Record {
    fn from(now: BootInstant) -> Self {
        Self { looked_at: now, stalls: Vec::new() }
    }

    fn look(&mut self, now: BootInstant) {
        let due = self.looked_at.plus(STEP);
        if now.since(due) >= STALL {
            self.stalls.push((due, now));
        }
        self.looked_at = now;
    }

    /// The longest part of a standstill that lies within, if it is long enough to count.
    fn longest(&self, began: BootInstant, ended: BootInstant) -> Option<Duration> {
        let within = |(from, to): &(BootInstant, BootInstant)| (*to.min(&ended)).since(*from.max(&began));
        self.stalls.iter().map(within).max().filter(|longest| *longest >= STALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(milliseconds))
    }

    /// Looks every 10 ms, but not between these instants.
    fn record(standstills: &[(u64, u64)], until: u64) -> Record {
        let mut record = Record::from(at(0));
        for now in (10..=until).step_by(10) {
            if !standstills.iter().any(|(from, to)| (from + 1..*to).contains(&now)) {
                record.look(at(now));
            }
        }
        record
    }

    #[test]
    fn a_standstill_is_proven_for_the_time_in_which_it_was() {
        let record = record(&[(1000, 1740), (3000, 3300)], 5000);
        assert_eq!(record.longest(at(0), at(5000)), Some(Duration::from_millis(730)));
        assert_eq!(record.longest(at(2000), at(5000)), Some(Duration::from_millis(290)));
        assert_eq!(record.longest(at(2000), at(2990)), None, "before it");
        assert_eq!(record.longest(at(3400), at(5000)), None, "after it");
        assert_eq!(record.longest(at(1600), at(2500)), None, "only its end is within");
    }

    #[test]
    fn a_late_look_is_no_standstill() {
        let record = record(&[(1000, 1200), (1400, 1650)], 5000);
        assert_eq!(record.longest(at(0), at(5000)), None);
    }

    #[test]
    fn the_monitor_looks() {
        let began = watch();
        let looked = (0..200).any(|_| {
            thread::sleep(STEP);
            RECORD.lock().unwrap().looked_at > began.plus(STEP)
        });
        assert!(looked);
        // An honest answer either way; only that there is one without a hang.
        let _ = since(began);
    }
}
