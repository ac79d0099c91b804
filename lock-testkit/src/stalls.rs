//! Whether the machine itself stood still.
//!
//! A case about time has a premise: that the machine runs. On a shared virtual machine that is not always so; all of it
//! may stand still for a second, or one processor of it, or all of it for a fifth of a second again and again, and a lease
//! that nobody could renew ends, as it must. One thread on each processor that wants nothing but to run every 10 ms notices
//! it: nothing that a backend does, short of taking every processor, holds one up for long, because the scheduler lets a
//! thread that mostly sleeps go first.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use lock_core::clock::{BootInstant, Clock, SystemClock};
#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::time::ttl;

/// The part of a lease's time that has to be missing for it to count: 250 ms of the 2 s that the leases of most cases
/// last.
const PART: u32 = 8;
/// The shortest standstill that is added to others. Threads that wait for their turn on a busy machine wait for less.
const NOTICED: Duration = Duration::from_millis(80);
/// The time that a monitor sleeps between two looks at the clock.
const STEP: Duration = Duration::from_millis(10);
/// The time for which a question waits for the monitors' next look.
const NEXT_LOOK: Duration = Duration::from_secs(2);

/// The time for which the machine runs until it counts as calm again.
const CALM: Duration = Duration::from_secs(2);
/// The longest wait for that.
const STORM: Duration = Duration::from_secs(30);

/// The present instant, from which on the machine is watched.
pub(crate) fn watch() -> BootInstant {
    LazyLock::force(&RECORDS);
    SystemClock.now()
}

/// Returns how long a processor stood still within the time of one lease since then, if it is proven that it did.
pub(crate) fn since(began: BootInstant) -> Option<Duration> {
    let ended = SystemClock.now();
    // A standstill that ends now has been noticed here before the monitors could.
    while records().iter().any(|record| record.looked_at < ended) && SystemClock.now().since(ended) < NEXT_LOOK {
        thread::sleep(STEP);
    }
    records().iter().filter_map(|record| record.worst(began, ended, ttl())).max()
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

/// The records, one for each processor. A panic elsewhere is not passed on: every critical section leaves the records valid.
static RECORDS: LazyLock<Mutex<Vec<Record>>> = LazyLock::new(|| {
    let mut records = Vec::new();
    for processor in processors() {
        let index = records.len();
        // Without a thread there is no record, and nothing is proven: every failure counts.
        if thread::Builder::new().name("stalls".to_owned()).spawn(move || monitor(index, processor)).is_ok() {
            records.push(Record::from(SystemClock.now()));
        }
    }
    Mutex::new(records)
});

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn monitor(index: usize, processor: Option<usize>) {
    stay_on(processor);
    loop {
        thread::sleep(STEP);
        records()[index].look(SystemClock.now());
    }
}

/// The processors that this process may use; `None` for any.
#[cfg(target_os = "linux")]
fn processors() -> Vec<Option<usize>> {
    let Ok(allowed) = sched_getaffinity(None) else { return vec![None] };
    (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).map(Some).collect()
}

#[cfg(not(target_os = "linux"))]
fn processors() -> Vec<Option<usize>> {
    vec![None]
}

#[cfg(target_os = "linux")]
fn stay_on(processor: Option<usize>) {
    if let Some(processor) = processor {
        let mut only = CpuSet::new();
        only.set(processor);
        // A thread that may go elsewhere notices less, and nothing that was not.
        let _ = sched_setaffinity(None, &only);
    }
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: Option<usize>) {}

/// The times at which a monitor did not run.
#[derive(Debug, Clone)]
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
        if now.since(due) >= NOTICED {
            self.stalls.push((due, now));
        }
        self.looked_at = now;
    }

    /// The most that was missing of the time of one such lease between these instants, if it is enough to count.
    fn worst(&self, began: BootInstant, ended: BootInstant, lease: Duration) -> Option<Duration> {
        let present = (self.looked_at.plus(STEP), ended);
        let present = (present.1.since(present.0) >= NOTICED).then_some(present);
        let within = self.stalls.iter().copied().chain(present).map(|(from, to)| (from.max(began), to.min(ended)));
        let within: Vec<_> = within.filter(|(from, to)| from < to).collect();
        let missing = |from: BootInstant| -> Duration {
            let over = from.plus(lease);
            let part = within.iter().filter(|(begun, _)| (from..over).contains(begun));
            part.map(|(begun, ended)| (*ended).min(over).since(*begun)).sum()
        };
        within.iter().map(|(from, _)| missing(*from)).max().filter(|worst| *worst >= lease / PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> BootInstant {
        BootInstant::from_origin(Duration::from_millis(milliseconds))
    }

    const LEASE: Duration = Duration::from_secs(2);

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
        assert_eq!(record.worst(at(0), at(5000), LEASE), Some(Duration::from_millis(730)));
        assert_eq!(record.worst(at(2000), at(5000), LEASE), Some(Duration::from_millis(290)));
        assert_eq!(record.worst(at(2000), at(2990), LEASE), None, "before it");
        assert_eq!(record.worst(at(3400), at(5000), LEASE), None, "after it");
        assert_eq!(record.worst(at(1600), at(2500), LEASE), None, "only its end is within");
    }

    #[test]
    fn what_is_missing_of_one_lease_is_added_up() {
        let record = record(&[(1000, 1210), (1300, 1510), (3400, 3610)], 6000);
        assert_eq!(record.worst(at(0), at(6000), LEASE), Some(Duration::from_millis(400)));
        assert_eq!(
            record.worst(at(1300), at(6000), LEASE),
            None,
            "the third one falls into another lease than the second"
        );
        assert_eq!(record.worst(at(1100), at(1400), LEASE), None, "only parts of them are within");
    }

    #[test]
    fn what_is_missing_is_never_more_than_the_lease() {
        let record = record(&[(1000, 1160), (2980, 3300), (4000, 9000)], 9500);
        assert_eq!(record.worst(at(0), at(2980), LEASE), None, "150 ms");
        assert_eq!(
            record.worst(at(0), at(3100), LEASE),
            None,
            "of the second one only 20 ms fall into the lease of the first"
        );
        assert_eq!(record.worst(at(0), at(9500), LEASE), Some(LEASE));
    }

    #[test]
    fn a_standstill_that_is_not_over_counts() {
        let record = record(&[], 1000);
        assert_eq!(record.worst(at(0), at(1080), LEASE), None, "a late look");
        assert_eq!(record.worst(at(0), at(2010), LEASE), Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_longer_lease_bears_more() {
        let record = record(&[(1000, 1500)], 3000);
        assert_eq!(record.worst(at(0), at(3000), LEASE), Some(Duration::from_millis(490)));
        assert_eq!(record.worst(at(0), at(3000), LEASE * 2), None);
    }

    #[test]
    fn a_late_look_is_no_standstill() {
        let late: Vec<_> = (0..40).map(|number| (1000 + 100 * number, 1080 + 100 * number)).collect();
        assert_eq!(record(&late, 6000).worst(at(0), at(6000), LEASE), None);
    }

    #[test]
    fn every_monitor_looks() {
        let began = watch();
        let looked = (0..200).any(|_| {
            thread::sleep(STEP);
            records().iter().all(|record| record.looked_at > began.plus(STEP))
        });
        assert!(looked);
        // An honest answer either way; only that there is one without a hang.
        let _ = since(began);
    }
}
