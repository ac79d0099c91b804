//! Runs the list: as a test binary of its own ([`main`]), or one case at a time ([`run_case`]).

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use libtest_mimic::{Arguments, Completion, Trial};

use crate::abilities::Abilities;
use crate::adapters::Form;
use crate::cases::{CASES, Case};
use crate::child::{obey, order_from_parent};
use crate::context::Cx;
use crate::failure::{Failure, Verdict};
use crate::harness::{Harness, Missing};
use crate::premise;
use crate::time::ms;

/// The variable that, set to `1`, makes a missing server fail the run instead of ignoring its trials.
pub const REQUIRE_VARIABLE: &str = "LOCK_TESTKIT_REQUIRE";

/// How many cases run at once unless `--test-threads` says otherwise. They mostly wait, so more than there are cores.
const AT_ONCE: usize = 12;

/// After how many milliseconds a case hangs. No claim about time: the longest one, 3,200 turns of 16 clients, takes a minute
/// on three servers that share two busy processors with everything else.
const HANGS: u64 = 180_000;

/// The whole of a conformance test binary (`harness = false`): every case of the list, with the options of `cargo test`.
///
/// Also the body of the child processes that some cases start: the binary starts itself again.
#[must_use = "the exit code tells the outcome"]
pub fn main<H: Harness>() -> ExitCode {
    let runtime = match runtime(2) {
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
        return libtest_mimic::run(&arguments, trials(&suite)).exit_code();
    }
    let suite = Arc::new(runtime.block_on(Suite::start::<H>()));
    if let Err(missing) = &*suite
        && std::env::var(REQUIRE_VARIABLE).is_ok_and(|value| value == "1")
    {
        return refuse(&format!("{REQUIRE_VARIABLE}=1, but the server is missing: {missing}"));
    }
    // The harness, and with it its servers, is dropped before its runtime, when the trials are through.
    libtest_mimic::run(&arguments, trials(&suite)).exit_code()
}

/// Runs one case of the list against a harness, in the form of the mutex.
///
/// For the suite's own tests: that a broken lock is rejected.
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

/// What a case says of a backend.
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
}

/// A trial for every case in every form.
fn trials(suite: &Arc<Result<Suite, Missing>>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for case in CASES {
        for form in case.forms {
            let (suite, case, form) = (suite.clone(), *case, *form);
            let shown = if case.forms.len() == 1 { String::new() } else { format!(" [{}]", form.name()) };
            trials.push(Trial::ignorable_test(format!("{} {}{shown}", case.id, case.name), move || {
                let outcome = match &*suite {
                    Ok(Suite { harness, abilities }) => run(harness, *abilities, case, form),
                    Err(missing) => Outcome::Ignored(missing.to_string()),
                };
                match outcome {
                    Outcome::Passed => Ok(Completion::Completed),
                    Outcome::Ignored(reason) => Ok(Completion::ignored_with(reason)),
                    Outcome::Rejected(why) => Err(why.into()),
                    Outcome::Unknown(why) => Err(format!("unknown: {why}").into()),
                }
            }));
        }
    }
    trials
}

fn run(harness: &Arc<dyn Harness>, abilities: Abilities, case: Case, form: Form) -> Outcome {
    let excluded = harness.exclusions().iter().find(|(id, _)| *id == case.id);
    let reason = excluded.map(|(_, reason)| (*reason).to_owned()).or_else(|| abilities.lacking(form, case.needs));
    if let Some(reason) = reason {
        return Outcome::Ignored(reason);
    }
    let judged = premise::judge(case.id, || run_once(harness, abilities, case, form));
    let Err(judged) = judged else { return Outcome::Passed };
    let says_nothing = judged.failure.says_nothing();
    let why = match judged.remark() {
        Some(remark) => judged.failure.and(remark).to_string(),
        None => judged.failure.to_string(),
    };
    if says_nothing { Outcome::Unknown(why) } else { Outcome::Rejected(why) }
}

/// One run of a case, with fresh names, in a runtime of its own.
fn run_once(harness: &Arc<dyn Harness>, abilities: Abilities, case: Case, form: Form) -> Verdict {
    let runtime = runtime(2)?;
    let cx = Cx::new(harness.clone(), abilities, form, runtime.handle().clone())?;
    let namespace = cx.namespace.clone();
    let verdict = runtime.block_on(bounded((case.run)(cx)));
    // What the case left running must not keep the trial from ending.
    runtime.shutdown_timeout(Duration::from_millis(100));
    verdict.map_err(|failure| failure.and(format_args!("namespace {namespace}")))
}

/// A case that hangs is rejected, and one that panics too.
async fn bounded(case: impl Future<Output = Verdict>) -> Verdict {
    let limit = ms(HANGS);
    match tokio::time::timeout(limit, AssertUnwindSafe(case).catch_unwind()).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(_)) => Err(Failure::new("the case panicked; its message is above")),
        Err(_) => Err(Failure::new(format!("the case hangs: no end within {limit:?}"))),
    }
}

/// A runtime of its own for a case or a test, so that nothing of one run is left in the next one.
pub(crate) fn runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("lock-testkit: {why}");
    ExitCode::FAILURE
}
