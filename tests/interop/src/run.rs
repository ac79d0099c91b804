//! One run: a server, members on one key, and what they leave behind.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use lock_testkit::HarnessError;
use rustix::process::Signal;
use tokio::process::Child;

use crate::Cli;
use crate::crowd::Bars;
use crate::plan::{Instant, Plan, Special};
use crate::record::Record;
use crate::scene::Program;
use crate::verdict::Verdict;

const WORK: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(50);

/// A crowd's TTL, which no hold outlasts.
const CROWDED_TTL: Duration = Duration::from_secs(10);

/// After the end of a run, when a crowd's turns would be special.
const NEVER: Duration = Duration::from_secs(3600);

/// For the last turns, after the end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs everybody, and judges what they did.
pub(crate) async fn run(cli: &Cli) -> Result<Verdict, HarnessError> {
    let scene = cli.scene;
    let server = scene.server().await?;
    std::fs::create_dir_all(&cli.logs)?;
    let counter = std::path::absolute(cli.logs.join("counter"))?;
    std::fs::write(&counter, "0")?;
    let from = Instant::now().after(scene.preparation());
    let length = Duration::from_secs(cli.seconds);
    let ((key, another_key), (ttl, long_work)) = (scene.keys(), scene.times());
    let mut plan = Plan {
        scene,
        url: server.url().to_owned(),
        key: key.to_owned(),
        limit: scene.limit(),
        counter: counter.clone(),
        ttl_ms: millis(ttl),
        work_ms: millis(WORK),
        pause_ms: millis(PAUSE),
        from,
        until: from.after(length),
        special: Special { at: from, work_ms: millis(long_work), dies: false },
    };
    let cast = cli.crowd.map_or_else(|| scene.members().to_vec(), |crowd| crowd.cast(scene));
    if cli.crowd.is_some() {
        (plan.work_ms, plan.pause_ms, plan.ttl_ms) = (cli.hold, cli.think, millis(CROWDED_TTL));
        // Shares of the turns: one at a time, also of a semaphore.
        plan.limit = 1;
    }
    let mut members = Vec::new();
    for (place, (name, program)) in (1..).zip(&cast) {
        let mut plan = plan.clone();
        if cli.crowd.is_some() {
            plan.special.at = plan.until.after(NEVER);
        } else {
            plan.special.at = from.after(length * place / (cast.len() as u32 + 1));
            plan.special.dies = cli.kill == *name;
        }
        if cli.broken.as_deref() == Some(name) {
            plan.key = another_key.to_owned();
        }
        members.push(Member::start(name, *program, &plan, &cli.logs)?);
    }
    let mut records = Vec::new();
    for member in members {
        records.push(member.end(&plan).await?);
    }
    let counted = std::fs::read_to_string(&counter)?.parse()?;
    let bars = cli.crowd.map(|_| Bars::of(scene, cast.len(), Duration::from_millis(cli.hold)));
    Ok(Verdict::of(&plan, &records, counted, bars))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A process, killed when this is dropped.
struct Member {
    name: &'static str,
    child: Child,
    log: PathBuf,
    dies: bool,
}

impl Member {
    fn start(name: &'static str, program: Program, plan: &Plan, logs: &Path) -> Result<Self, HarnessError> {
        let log = logs.join(format!("{name}.log"));
        let mut command = program.command()?;
        command.arg(serde_json::to_string(plan)?).stdin(Stdio::null()).stdout(File::create(&log)?).kill_on_drop(true);
        let child =
            command.spawn().map_err(|error| HarnessError::new(format!("{name} could not be started: {error}")))?;
        Ok(Self { name, child, log, dies: plan.special.dies })
    }

    /// Waits for its end, and reads its log.
    async fn end(mut self, plan: &Plan) -> Result<Record, HarnessError> {
        let left = plan.until.after(PATIENCE).since(Instant::now());
        let Ok(status) = tokio::time::timeout(left, self.child.wait()).await else {
            return Err(HarnessError::new(format!("{} did not end within {PATIENCE:?} of the run's end", self.name)));
        };
        let status: ExitStatus = status?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        let as_planned = if self.dies { killed } else { status.success() };
        if !as_planned {
            return Err(HarnessError::new(format!("{} ended with {status}; see {}", self.name, self.log.display())));
        }
        Record::read(self.name, &std::fs::read_to_string(&self.log)?, killed)
    }
}
