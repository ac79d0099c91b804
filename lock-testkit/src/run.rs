//! Runs the list: as a test binary of its own ([`main`]), or one case at a time ([`run_case`]).

use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Completion, FormatSetting, Trial};

use crate::abilities::Abilities;
use crate::adapters::Form;
use crate::admission;
use crate::cases::{CASES, Case};
use crate::child::{obey, order_from_parent};
use crate::context::Cx;
use crate::error::Missing;
use crate::expected;
use crate::failure::{Failure, Verdict};
use crate::harness::Harness;
use crate::ignored::Ignored;
use crate::panics::{Run, Watch};
use crate::time::ms;
use crate::void_runs;

/// The variable that, set to `1`, makes a missing server fail the run instead of ignoring its trials.
pub const REQUIRE_VARIABLE: &str = "LOCK_TESTKIT_REQUIRE";

/// The most cases at once unless `--test-threads` says otherwise. They mostly wait, so more than there are cores.
const AT_ONCE: usize = 12;

/// The milliseconds after which a case hangs. No claim about time: a thousand permits one after the other, on a server in Java with the slower
/// of its clients, take 20 s alone, and took three minutes on two processors on which twenty others wanted to run.
const HANGS: u64 = 420_000;

/// The milliseconds beyond that for which a case may go on: by then the timers of its own runtime have told that it hangs.
const GRACE: u64 = 10_000;

/// The whole of a conformance test binary (`harness = false`): every case of the list, with the options of `cargo test`.
///
/// Also the body of the child processes that some cases start: the binary starts itself again.
#[must_use = "the exit code tells the outcome"]
pub fn main<H: Harness>() -> ExitCode {
    let runtime = match runtime(None) {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&format!("no runtime: {error}")),
    };
    if let Some(order) = order_from_parent() {
        return match runtime.block_on(obey::<H>(order)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => refuse(&format!("child: {failure}")),
        };
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    if arguments.list {
        let suite = Arc::new(Err(Missing::new("the cases are only listed")));
        // What applies becomes known with a server only: listed as ignored, a case would not be run at all by its name.
        let listed = trials(&suite, &mut |_, _, _| true).into_iter().map(|trial| trial.with_ignored_flag(false));
        return libtest_mimic::run(&arguments, listed.collect()).exit_code();
    }
    let suite = Arc::new(runtime.block_on(Suite::start::<H>()));
    if let Err(missing) = &*suite
        && std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1")
    {
        return refuse(&format!("{REQUIRE_VARIABLE}=1, but the server is missing: {missing}"));
    }
    if let Ok(suite) = &*suite
        && let Some(file) = suite.harness.expected_ignored()
        && let Err(difference) = expected::compare(&file, &suite.ignored())
    {
        return refuse(&difference);
    }
    let mut ignored = Ignored::default();
    let trials = trials(&suite, &mut |case, trial, reason| match reason {
        Some(reason) if !arguments.ignored => {
            if !arguments.is_filtered_out(trial) {
                ignored.add(case.id, trial.name().to_owned(), reason);
            }
            false
        }
        reason => reason.is_some() == arguments.ignored,
    });
    // The harness, and with it its servers, is dropped before its runtime, when the trials are through.
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.format.is_none_or(|format| format != FormatSetting::Json) {
        print!("{ignored}");
    }
    conclusion.exit_code()
}

/// Runs one case of the list against a harness, in the form of the mutex.
///
/// For the suite's own tests: that a broken lock is rejected.
///
/// # Cancel safety
/// The case goes on by itself although the future was dropped.
pub async fn run_case(harness: Arc<dyn Harness>, id: &str) -> Outcome {
    let Some(case) = CASES.iter().find(|case| case.id == id) else {
        return Outcome::Rejected(format!("there is no case {id}"));
    };
    match Abilities::of(&*harness).await {
        Ok(abilities) => {
            let case = *case;
            // A case brings a runtime of its own, which cannot be entered from within another one.
            let run = tokio::task::spawn_blocking(move || run(&harness, abilities, case, Form::Mutex));
            run.await.unwrap_or_else(|error| Outcome::Rejected(format!("the case panicked: {error}")))
        }
        Err(error) => Outcome::Rejected(format!("no client: {error}")),
    }
}

/// A case's judgement of a backend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The claim held.
    Passed,
    /// The claim did not hold; how.
    Rejected(String),
    /// Nobody knows: a fault that was to be met did not happen. Fails a run of the suite.
    Unknown(String),
    /// The case does not apply; why.
    Ignored(String),
}

impl Outcome {
    /// Whether the case rejects the backend.
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        matches!(self, Self::Rejected(_))
    }
}

/// A harness that was started, with what it can do.
struct Suite {
    harness: Arc<dyn Harness>,
    abilities: Abilities,
}

impl Suite {
    async fn start<H: Harness>() -> Result<Self, Missing> {
        let harness: Arc<dyn Harness> = Arc::new(H::start().await?);
        let abilities =
            Abilities::of(&*harness).await.map_err(|error| Missing::new(format!("no client of it: {error}")))?;
        Ok(Self { harness, abilities })
    }

    /// The cases that do not apply in any form, with the reason.
    fn ignored(&self) -> BTreeSet<String> {
        let reason = |case: &Case| {
            let reasons = case.forms.iter().map(|form| not_applying(&self.harness, &self.abilities, *case, *form));
            reasons.collect::<Option<Vec<_>>>().and_then(|reasons| reasons.into_iter().next())
        };
        CASES.iter().filter_map(|case| Some(format!("{}: {}", case.id, reason(case)?))).collect()
    }
}

/// Whether a trial is run, by its case and the reason for which it does not apply, if there is one.
type Picks<'p> = &'p mut dyn FnMut(&Case, &Trial, Option<String>) -> bool;

/// A trial for every case in every form; those that are picked.
fn trials(suite: &Arc<Result<Suite, Missing>>, picks: Picks<'_>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in CASES {
        for form in case.forms {
            let (case, form) = (*case, *form);
            let shown = if case.forms.len() == 1 { String::new() } else { format!(" [{}]", form.name()) };
            let reason = match &**suite {
                Ok(Suite { harness, abilities }) => not_applying(harness, abilities, case, form),
                Err(missing) => Some(missing.to_string()),
            };
            let (suite, is_ignored) = (suite.clone(), reason.is_some());
            let trial = Trial::ignorable_test(format!("{} {}{shown}", case.id, case.name), move || {
                let outcome = match &*suite {
                    Ok(Suite { harness, abilities }) => run(harness, *abilities, case, form),
                    Err(missing) => Outcome::Ignored(missing.to_string()),
                };
                // At once, and not only when all the others are through.
                if let Outcome::Rejected(why) | Outcome::Unknown(why) = &outcome {
                    eprintln!("{}{shown}: {why}", case.id);
                }
                match outcome {
                    Outcome::Passed => Ok(Completion::Completed),
                    Outcome::Ignored(reason) => Ok(Completion::ignored_with(reason)),
                    Outcome::Rejected(why) => Err(why.into()),
                    Outcome::Unknown(why) => Err(format!("unknown: {why}").into()),
                }
            })
            .with_ignored_flag(is_ignored);
            if picks(&case, &trial, reason) {
                trials.push(trial);
            }
        }
    }
    trials
}

/// Returns why a case does not apply; `None` if it does.
fn not_applying(harness: &Arc<dyn Harness>, abilities: &Abilities, case: Case, form: Form) -> Option<String> {
    let excluded = harness.exclusions().iter().find(|(id, _)| *id == case.id);
    excluded.map(|(_, reason)| (*reason).to_owned()).or_else(|| abilities.lacking(form, case.needs))
}

fn run(harness: &Arc<dyn Harness>, abilities: Abilities, case: Case, form: Form) -> Outcome {
    if let Some(reason) = not_applying(harness, &abilities, case, form) {
        return Outcome::Ignored(reason);
    }
    let _admitted = admission::enter();
    let judged = void_runs::judge(case.id, Failure::is_timeless, || run_once(harness, abilities, case, form));
    let Err(judged) = judged else { return Outcome::Passed };
    let says_nothing = judged.failure.says_nothing();
    let why = match judged.remark() {
        Some(remark) => judged.failure.and(remark).to_string(),
        None => judged.failure.to_string(),
    };
    if says_nothing { Outcome::Unknown(why) } else { Outcome::Rejected(why) }
}

/// Runs a case once, with fresh names, in a runtime of its own. Whatever panics meanwhile fails it.
fn run_once(harness: &Arc<dyn Harness>, abilities: Abilities, case: Case, form: Form) -> Verdict {
    let run = Run::new();
    let (watch, _working) = (Watch::of(run), Run::work(Some(run)));
    let runtime = runtime(Some(run))?;
    let cx = Cx::new(harness.clone(), abilities, form, runtime.handle().clone())?;
    let namespace = cx.namespace.clone();
    let work = move || (runtime.block_on(bounded((case.run)(cx))), runtime);
    let (verdict, runtime) = match on_a_thread(run, ms(HANGS + GRACE), work) {
        Ok(done) => done,
        Err(what) => {
            let failure = Failure::new(what).timeless().and(format_args!("namespace {namespace}"));
            return Err(match watch.seen() {
                Some(panicked) => failure.and(panicked),
                None => failure,
            });
        }
    };
    // In this order: a panic in between counts.
    let ending = Watch::of(run);
    let seen = watch.seen();
    // What the case left running must not keep the trial from ending.
    runtime.shutdown_timeout(Duration::from_millis(100));
    let tolerated = harness.panics_at_the_end();
    let seen = seen.or_else(|| ending.seen_except(|said| tolerated.iter().any(|(text, _)| said.contains(text))));
    let verdict = match (verdict, seen) {
        (verdict, None) => verdict,
        (Ok(()), Some(panicked)) => Err(Failure::new(panicked.to_string()).timeless()),
        (Err(failure), Some(panicked)) => Err(failure.and(panicked).timeless()),
    };
    verdict.map_err(|failure| failure.and(format_args!("namespace {namespace}")))
}

/// Does this on a thread of its own, for the run. One that does not end within the limit is left to itself.
fn on_a_thread<T: Send + 'static>(
    run: Run,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, &'static str> {
    let (done, outcome) = mpsc::sync_channel(1);
    let name = std::thread::current().name().unwrap_or("a case").to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || {
        Run::adopt(Some(run));
        // Nobody listens any more if it was given up.
        let _ = done.send(work());
    });
    let thread = thread.map_err(|_| "the case has no thread: the system starts no more")?;
    let outcome = outcome.recv_timeout(limit);
    if matches!(outcome, Err(RecvTimeoutError::Timeout)) {
        return Err(
            "the case hangs, and so do its threads: the backend blocks them, and no timer of theirs runs any more",
        );
    }
    let _ = thread.join();
    outcome.map_err(|_| "the case panicked")
}

/// A case that hangs is rejected, and one that panics too.
async fn bounded(case: impl Future<Output = Verdict>) -> Verdict {
    let limit = ms(HANGS);
    match tokio::time::timeout(limit, AssertUnwindSafe(case).catch_unwind()).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Err(Failure::new("the case panicked").timeless()),
        Err(_) => Err(Failure::new(format!("the case hangs: no end within {limit:?}")).timeless()),
    }
}

/// A runtime of its own for a test or a run of a case, so that nothing of one run is left in the next one.
pub(crate) fn runtime(run: Option<Run>) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_start(move || Run::adopt(run))
        .enable_all()
        .build()
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("lock-testkit: {why}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_whose_threads_are_blocked_ends_all_the_same() {
        let run = Run::new();
        let blocked = || loop {
            std::thread::park();
        };
        assert!(on_a_thread::<()>(run, ms(50), blocked).unwrap_err().contains("hangs"));
        assert_eq!(on_a_thread(run, ms(60_000), Run::present), Ok(Some(run)));
        assert_eq!(
            on_a_thread::<()>(run, ms(60_000), || std::panic::resume_unwind(Box::new(()))),
            Err("the case panicked")
        );
    }
}
