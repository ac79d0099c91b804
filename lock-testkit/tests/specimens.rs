//! The cases can fail: each broken lock is rejected by the case that is named for it, because of its flaw, and the sound
//! reference passes the same cases.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::specimens::{REJECTIONS, Recipe, Rejection, Specimen};
use lock_testkit::{Missing, Outcome, REQUIRE_VARIABLE, run_case};
use tokio::runtime::Runtime;

/// Cases that reject no specimen yet, which the reference passes too: it is a lock.
const MORE: &[&str] =
    &["C-M03", "C-M04", "C-M07", "C-M09", "C-M13", "C-D03", "C-R01", "C-W06", "C-W11", "C-W13", "C-F11"];

struct Laboratory {
    runtime: Runtime,
    server: Result<RedisServer, Missing>,
}

impl Laboratory {
    fn run(&self, recipe: Recipe, case: &str, judge: impl FnOnce(Outcome) -> Result<(), String>) -> Trialled {
        match &self.server {
            Ok(server) => {
                let outcome = self.runtime.block_on(run_case(Arc::new(Specimen::new(recipe, server.url())), case));
                judge(outcome).map(|()| Completion::Completed).map_err(Failed::from)
            }
            Err(missing) => Ok(Completion::ignored_with(missing)),
        }
    }
}

type Trialled = Result<Completion, Failed>;

fn is_rejected(laboratory: &Laboratory, rejection: &Rejection) -> Trialled {
    laboratory.run(rejection.recipe, rejection.case, |outcome| match outcome {
        Outcome::Rejected(why) if why.contains(rejection.symptom) => Ok(()),
        Outcome::Rejected(why) => Err(format!("rejected, but not for its flaw ({}): {why}", rejection.symptom)),
        other => Err(format!("not rejected: {other:?}")),
    })
}

fn passes(laboratory: &Laboratory, case: &str) -> Trialled {
    laboratory.run(Recipe::Reference, case, |outcome| match outcome {
        Outcome::Passed => Ok(()),
        other => Err(format!("the sound reference does not pass: {other:?}")),
    })
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(12);
    let Ok(runtime) = Runtime::new() else { return ExitCode::FAILURE };
    let server = runtime.block_on(RedisServer::start());
    if let (Err(missing), Ok("1")) = (&server, std::env::var(REQUIRE_VARIABLE).as_deref()) {
        eprintln!("{REQUIRE_VARIABLE}=1, but the server is missing: {missing}");
        return ExitCode::FAILURE;
    }
    let laboratory = Arc::new(Laboratory { runtime, server });
    let mut trials = Vec::new();
    for rejection in REJECTIONS {
        let laboratory = laboratory.clone();
        let name = format!("{} rejects the specimen {:?}", rejection.case, rejection.recipe.name());
        trials.push(Trial::ignorable_test(name, move || is_rejected(&laboratory, rejection)));
    }
    let cases: BTreeSet<_> = REJECTIONS.iter().map(|rejection| rejection.case).chain(MORE.iter().copied()).collect();
    for case in cases {
        let laboratory = laboratory.clone();
        trials.push(Trial::ignorable_test(format!("{case} passes the reference"), move || passes(&laboratory, case)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
