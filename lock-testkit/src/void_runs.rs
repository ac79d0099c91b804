//! Runs that say nothing: a failure counts, unless the machine, or a processor of it, stood still meanwhile.

use std::fmt::Display;
use std::time::Duration;

use crate::stalls;

/// The number of runs while the machine stands still in each of them.
const RUNS: usize = 3;

/// A failure that counts.
#[derive(Debug)]
pub(crate) struct Judged<F> {
    pub(crate) failure: F,
    /// The times for which a processor stood still in each run, where it is proven that it did.
    pub(crate) stalls: Vec<Duration>,
}

impl<F> Judged<F> {
    /// Says what the standstills have to do with it, if there were any.
    pub(crate) fn remark(&self) -> Option<String> {
        let stalls = &self.stalls;
        (!stalls.is_empty()).then(|| format!("a processor stood still in {} of its runs: {stalls:?}", stalls.len()))
    }
}

/// Judges by a run, or by another one if the machine stood still in it.
///
/// This is no second chance for what fails now and then: a failure counts at once, unless it is proven that the run's
/// premise, a machine that runs, did not hold. Such a run says nothing, neither for nor against. The next one begins when
/// the machine has calmed down.
///
/// A failure that `is_timeless` is not explained by a standstill, and counts at once.
pub(crate) fn judge<F: Display>(
    what: &str,
    is_timeless: fn(&F) -> bool,
    mut run: impl FnMut() -> Result<(), F>,
) -> Result<(), Judged<F>> {
    judge_by(what, stalls::calm_down, || {
        let began = stalls::watch();
        run().map_err(|failure| {
            let stall = if is_timeless(&failure) { None } else { stalls::since(began) };
            (failure, stall)
        })
    })
}

/// Judges runs whose failures come with the time for which the machine stood still, if it did.
fn judge_by<F: Display>(
    what: &str,
    calm_down: fn(),
    mut run: impl FnMut() -> Result<(), (F, Option<Duration>)>,
) -> Result<(), Judged<F>> {
    let mut stalls = Vec::new();
    loop {
        let Err((failure, stall)) = run() else { return Ok(()) };
        stalls.extend(stall);
        let Some(stall) = stall.filter(|_| stalls.len() < RUNS) else { return Err(Judged { failure, stalls }) };
        eprintln!("{what}: void: a processor stood still for {} ms ({failure})", stall.as_millis());
        calm_down();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_millis(730);

    /// Judges by these runs: each passes, or fails with or without a standstill. Says how many it took.
    fn judged(runs: &[Result<(), Option<Duration>>]) -> (Result<(), Judged<String>>, usize) {
        let mut taken = 0;
        let outcome = judge_by(
            "C-0",
            || (),
            || {
                taken += 1;
                runs[taken - 1].map_err(|stall| (format!("run {taken}"), stall))
            },
        );
        (outcome, taken)
    }

    #[test]
    fn a_failure_without_a_standstill_counts_at_once() {
        let (outcome, taken) = judged(&[Err(None), Ok(())]);
        assert!(outcome.unwrap_err().remark().is_none() && taken == 1);
        let (outcome, taken) = judged(&[Err(Some(STALL)), Err(None), Ok(())]);
        assert!(outcome.unwrap_err().failure == "run 2" && taken == 2);
    }

    #[test]
    fn a_failure_in_a_standstill_is_judged_anew() {
        let (outcome, taken) = judged(&[Err(Some(STALL)), Err(Some(STALL)), Ok(())]);
        assert!(outcome.is_ok() && taken == 3);
        let (outcome, taken) = judged(&[Ok(()), Err(None)]);
        assert!(outcome.is_ok() && taken == 1);
    }

    #[test]
    fn the_third_void_run_is_a_failure_that_names_the_standstills() {
        let (outcome, taken) = judged(&[Err(Some(STALL)); 5]);
        let judged = outcome.unwrap_err();
        assert!(taken == 3 && judged.failure == "run 3");
        assert!(judged.remark().unwrap().contains("3 of its runs: [730ms, 730ms, 730ms]"));
    }
}
