//! The cases can fail: each broken lock is rejected by the case that is named for it, because of its flaw, and the sound
//! reference at the same server passes the same cases.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use lock_testkit::testing::about_time;
use lock_testkit::{Harness, Missing, Outcome, REQUIRE_VARIABLE, run_case};
use lock_testkit_servers::Deployment;
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use specimens::redis::records;
use specimens::{Rejection, memcached, redis, shelf, zookeeper};
use tokio::runtime::Runtime;

/// Cases that reject no specimen yet, which the reference on Redis passes too: it is a lock.
const MORE_ON_REDIS: &[&str] =
    &["C-M03", "C-M04", "C-M07", "C-M09", "C-M13", "C-D03", "C-R01", "C-W06", "C-W13", "C-F11"];
/// Likewise of records on Redis.
const MORE_ON_RECORDS: &[&str] = &["C-RC03"];
/// Likewise on ZooKeeper, where readers and writers stand in the queue too.
const MORE_ON_ZOOKEEPER: &[&str] = &[
    "C-M02", "C-M05", "C-M07", "C-M09", "C-D03", "C-R01", "C-W06", "C-W07", "C-W12", "C-RW01", "C-RW02", "C-RW03",
    "C-RW05", "C-RW12", "C-RW13",
];
/// Likewise on memcached.
const MORE_ON_MEMCACHED: &[&str] = &["C-M02", "C-M05", "C-M07", "C-M09", "C-D03", "C-R01", "C-W06"];

/// Likewise on a shelf in memory.
const MORE_ON_A_SHELF: &[&str] =
    &["C-M02", "C-M05", "C-M09", "C-D03", "C-LV02", "C-LV03", "C-LV08", "C-R01", "C-R06b", "C-R07", "C-R08", "C-W06"];

/// The deployment of a shelf in memory, which needs no server.
struct NoServer;

#[async_trait::async_trait]
impl Deployment for NoServer {
    const NAME: &'static str = "a shelf";

    async fn start() -> Result<Self, Missing> {
        Ok(Self)
    }

    fn url(&self) -> &str {
        ""
    }
}

type Trialled = Result<Completion, Failed>;

/// A kind of lock server, with the broken locks on it.
struct Laboratory<D, R: 'static> {
    runtime: Arc<Runtime>,
    server: Result<D, Missing>,
    make: fn(R, &str) -> Arc<dyn Harness>,
    reference: R,
    rejections: &'static [Rejection<R>],
    more: &'static [&'static str],
}

impl<D: Deployment, R: Copy + Send + Sync + 'static> Laboratory<D, R> {
    fn run(&self, recipe: R, case: &str, judge: impl FnOnce(Outcome) -> Result<(), String>) -> Trialled {
        match &self.server {
            Ok(server) => {
                let outcome = self.runtime.block_on(run_case((self.make)(recipe, server.url()), case));
                judge(outcome).map(|()| Completion::Completed).map_err(Failed::from)
            }
            Err(missing) => Ok(Completion::ignored_with(missing)),
        }
    }

    /// A standstill may close the window in which the flaw shows: then a pass says as little as any failure.
    fn is_rejected(&self, rejection: &Rejection<R>) -> Trialled {
        let server = match &self.server {
            Ok(server) => server,
            Err(missing) => return Ok(Completion::ignored_with(missing)),
        };
        about_time(async || {
            let outcome = run_case((self.make)(rejection.recipe, server.url()), rejection.case).await;
            let shows = matches!(&outcome, Outcome::Rejected(why) if why.contains(rejection.symptom));
            if !shows {
                let what = format!("not rejected for its flaw ({}): {outcome:?}", rejection.symptom);
                // Without the noise of a panic, which cases that run beside this one would answer for.
                resume_unwind(Box::new(what));
            }
        });
        Ok(Completion::Completed)
    }

    fn passes(&self, case: &str) -> Trialled {
        self.run(self.reference, case, |outcome| match outcome {
            Outcome::Passed => Ok(()),
            other => Err(format!("the sound reference does not pass: {other:?}")),
        })
    }

    /// A trial for every broken lock, and one for every case that the reference is to pass.
    fn trials(self) -> Vec<Trial> {
        let laboratory = Arc::new(self);
        let name = |recipe| (laboratory.make)(recipe, "").name();
        let mut trials = Vec::new();
        for rejection in laboratory.rejections {
            let name = format!("{} rejects the specimen {:?}", rejection.case, name(rejection.recipe));
            let laboratory = laboratory.clone();
            trials.push(Trial::ignorable_test(name, move || laboratory.is_rejected(rejection)));
        }
        let rejecting = laboratory.rejections.iter().map(|rejection| rejection.case);
        for case in rejecting.chain(laboratory.more.iter().copied()).collect::<BTreeSet<_>>() {
            let name = format!("{case} passes {}", name(laboratory.reference));
            let laboratory = laboratory.clone();
            trials.push(Trial::ignorable_test(name, move || laboratory.passes(case)));
        }
        trials
    }
}

/// All trials; an error if a server is missing that has to be there.
fn trials(runtime: &Arc<Runtime>) -> Result<Vec<Trial>, Missing> {
    let on_redis = Laboratory {
        runtime: runtime.clone(),
        server: required(runtime.block_on(RedisServer::start()))?,
        make: |recipe, url| Arc::new(redis::Specimen::new(recipe, url)),
        reference: redis::Recipe::Reference,
        rejections: redis::REJECTIONS,
        more: MORE_ON_REDIS,
    };
    let on_records = Laboratory {
        runtime: runtime.clone(),
        server: required(runtime.block_on(RedisServer::start()))?,
        make: |recipe, url| Arc::new(records::RecordSpecimen::new(recipe, url)),
        reference: records::Recipe::Reference,
        rejections: records::REJECTIONS,
        more: MORE_ON_RECORDS,
    };
    let on_zookeeper = Laboratory {
        runtime: runtime.clone(),
        server: required(runtime.block_on(ZooKeeperServer::start()))?,
        make: |recipe, url| Arc::new(zookeeper::Specimen::new(recipe, url)),
        reference: zookeeper::Recipe::Reference,
        rejections: zookeeper::REJECTIONS,
        more: MORE_ON_ZOOKEEPER,
    };
    let on_memcached = Laboratory {
        runtime: runtime.clone(),
        server: required(runtime.block_on(MemcachedServer::start()))?,
        make: |recipe, url| Arc::new(memcached::Specimen::new(recipe, url)),
        reference: memcached::Recipe::Reference,
        rejections: memcached::REJECTIONS,
        more: MORE_ON_MEMCACHED,
    };
    let on_a_shelf = Laboratory {
        runtime: runtime.clone(),
        server: Ok(NoServer),
        make: |recipe, _| Arc::new(shelf::Specimen::new(recipe)),
        reference: shelf::Recipe::Reference,
        rejections: shelf::REJECTIONS,
        more: MORE_ON_A_SHELF,
    };
    let on_redis = on_redis.trials().into_iter().chain(on_records.trials());
    let others = [on_zookeeper.trials(), on_memcached.trials(), on_a_shelf.trials()];
    Ok(on_redis.chain(others.into_iter().flatten()).collect())
}

/// A server that is missing keeps trials from running, unless it has to be there.
fn required<D>(server: Result<D, Missing>) -> Result<Result<D, Missing>, Missing> {
    match (server, std::env::var(REQUIRE_VARIABLE).as_deref()) {
        (Err(missing), Ok("1")) => Err(missing),
        (server, _) => Ok(server),
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(12);
    let Ok(runtime) = Runtime::new() else { return ExitCode::FAILURE };
    match trials(&Arc::new(runtime)) {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(missing) => {
            eprintln!("{REQUIRE_VARIABLE}=1, but the server is missing: {missing}");
            ExitCode::FAILURE
        }
    }
}
