//! The number of cases that run at once, by what the machine carries.
//!
//! Most cases wait for most of their time, so that many of them fit onto few processors. Some are crowds, and where several of
//! those meet, or the machine is slow, each takes the others' time: then a claim about time says more about the neighbours than
//! about the backend. A case is let in when the processors have time left, or when few others are running.

use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of cases that run at once however busy the processors are.
const LEAST: usize = 4;
/// The time between two looks at the processors; beyond [`LEAST`] one case is let in after each.
const LOOK: Duration = Duration::from_millis(100);
/// The weight of the last look among those before.
const WEIGHT: f64 = 0.3;
/// The share of the processors' time from which on they count as busy.
const BUSY: f64 = 0.9;

static GATE: LazyLock<Gate> = LazyLock::new(Gate::default);

/// Blocks until another case may run.
pub(crate) fn enter() -> Admitted {
    let gate = &*GATE;
    let mut cases = gate.cases();
    while !cases.may_enter(Instant::now(), used_time) {
        cases = gate.left.wait_timeout(cases, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
    cases.running += 1;
    Admitted
}

/// One case that runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted;

impl Drop for Admitted {
    fn drop(&mut self) {
        GATE.cases().running -= 1;
        GATE.left.notify_one();
    }
}

#[derive(Debug, Default)]
struct Gate {
    cases: Mutex<Cases>,
    left: Condvar,
}

impl Gate {
    /// A panic elsewhere is not passed on: every critical section leaves the numbers valid.
    fn cases(&self) -> MutexGuard<'_, Cases> {
        self.cases.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Cases {
    running: usize,
    looked_at: Option<Instant>,
    used: Option<UsedTime>,
    /// The share of the processors' time that is used.
    busy: f64,
}

impl Cases {
    fn may_enter(&mut self, now: Instant, used: impl FnOnce() -> Option<UsedTime>) -> bool {
        if self.running < LEAST {
            return true;
        }
        if self.looked_at.is_some_and(|at| now.duration_since(at) < LOOK) {
            return false;
        }
        self.looked_at = Some(now);
        // Where nobody says how busy the processors are, they are not.
        let Some(used) = used() else { return true };
        if let Some(share) = self.used.and_then(|before| used.share_since(before)) {
            self.busy += WEIGHT * (share - self.busy);
        }
        self.used = Some(used);
        self.busy < BUSY
    }
}

/// The time that the machine's processors have been used, and all of their time, in ticks. What has stepped back behind
/// everything else by its niceness does not count as a use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UsedTime {
    used: u64,
    all: u64,
}

impl UsedTime {
    /// Reads the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    fn of(stat: &str) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8).map(str::parse);
        let [user, nice, system, idle, iowait, irq, softirq, steal] =
            ticks.collect::<Result<Vec<u64>, _>>().ok()?.try_into().ok()?;
        let used = user + system + irq + softirq + steal;
        Some(Self { used, all: used + nice + idle + iowait })
    }

    /// The used share of the time since then; `None` if no time has passed.
    fn share_since(self, before: Self) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        // Ticks of some minutes.
        Some(self.used.saturating_sub(before.used) as f64 / all as f64)
    }
}

fn used_time() -> Option<UsedTime> {
    UsedTime::of(&std::fs::read_to_string("/proc/stat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nice_and_what_is_idle_is_not_used() {
        let before = UsedTime::of("cpu  100 50 20 1000 5 1 2 3 0 0\ncpu0 1 2 3").unwrap();
        assert_eq!(before, UsedTime { used: 126, all: 1181 });
        let after = UsedTime::of("cpu  130 110 20 1010 5 1 2 3 9 9").unwrap();
        assert_eq!(after.share_since(before), Some(0.3));
        assert_eq!(after.share_since(after), None);
        for wrong in ["", "cpu0 1 2 3 4 5 6 7 8", "cpu  1 2 3", "cpu  1 2 3 4 5 6 7 x"] {
            assert_eq!(UsedTime::of(wrong), None, "{wrong}");
        }
    }

    /// Lets in as many as it does in ten seconds of this share of use.
    fn entered(share: f64) -> usize {
        let (mut cases, mut now, began) = (Cases::default(), Instant::now(), Instant::now());
        while now.duration_since(began) < Duration::from_secs(10) {
            let all = u64::try_from(now.duration_since(began).as_millis()).unwrap();
            let used = Some(UsedTime { used: (all as f64 * share) as u64, all });
            if cases.may_enter(now, || used) {
                cases.running += 1;
            }
            now += Duration::from_millis(10);
        }
        cases.running
    }

    #[test]
    fn few_run_on_busy_processors_and_one_more_is_let_in_after_each_look_at_others() {
        assert!((95..=104).contains(&entered(0.5)), "{}", entered(0.5));
        assert!((LEAST..=LEAST + 12).contains(&entered(1.0)), "{}", entered(1.0));
    }

    #[test]
    fn a_case_that_ends_makes_room() {
        let first = enter();
        assert!(GATE.cases().running >= 1);
        drop(first);
        drop(enter());
    }
}
