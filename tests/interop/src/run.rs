//! One run: a server, members on one key, and what they leave behind.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use lock_testkit::Broken;
use rustix::process::Signal;
use tokio::process::{Child, Command};

use crate::Cli;
use crate::plan::{Instant, Plan, Special};
use crate::record::Record;
use crate::server::{Counter, Server};
use crate::verdict::Verdict;

/// redis-semaphore begins every key like this.
const KEY: &str = "mutex:shared";
/// Where `--break` sends a member.
const ANOTHER_KEY: &str = "mutex:somewhere-else";
const COUNTER: &str = "counter";

/// Of the special turns, beyond the TTL.
const LONG_WORK: Duration = Duration::from_millis(300);
const WORK: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(50);

/// For the last turns, after the end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs everybody, and judges what they did.
pub(crate) async fn run(cli: &Cli) -> Result<Verdict, Broken> {
    let kind = cli.server;
    let server = Server::start(kind).await?;
    let from = Instant::now().after(kind.preparation());
    let length = Duration::from_secs(cli.seconds);
    let plan = Plan {
        url: server.url().to_owned(),
        backend: format!("{kind:?}").to_lowercase(),
        key: KEY.to_owned(),
        counter: COUNTER.to_owned(),
        ttl_ms: millis(kind.ttl()),
        work_ms: millis(WORK),
        pause_ms: millis(PAUSE),
        from,
        until: from.after(length),
        special: Special { at: from, work_ms: millis(kind.ttl() + LONG_WORK), dies: false },
    };
    std::fs::create_dir_all(&cli.logs)?;
    let mut members = Vec::new();
    let many = u32::try_from(kind.members().len())?;
    for (place, (name, script)) in (1..).zip(kind.members().iter().copied()) {
        let mut plan = plan.clone();
        plan.special.at = from.after(length * place / (many + 1));
        plan.special.dies = cli.kill == name;
        if cli.broken.as_deref() == Some(name) {
            plan.key = ANOTHER_KEY.to_owned();
        }
        members.push(Member::start(name, script, &plan, &cli.logs)?);
    }
    let mut records = Vec::new();
    for member in members {
        records.push(member.end(&plan).await?);
    }
    let counter = Counter::at(server.url())?.read(COUNTER).await?;
    Ok(Verdict::of(&plan, &records, counter, kind.kept()))
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
    fn start(name: &'static str, script: Option<&str>, plan: &Plan, logs: &Path) -> Result<Self, Broken> {
        let log = logs.join(format!("{name}.log"));
        let mut command = match script {
            Some(script) => {
                let interpreter = if script.ends_with(".py") { "python3" } else { "node" };
                let mut command = Command::new(interpreter);
                command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--member");
                command
            }
        };
        command.arg(serde_json::to_string(plan)?).stdin(Stdio::null()).stdout(File::create(&log)?).kill_on_drop(true);
        let child = command.spawn().map_err(|error| Broken::new(format!("{name} could not be started: {error}")))?;
        Ok(Self { name, child, log, dies: plan.special.dies })
    }

    /// Waits for its end, and reads its log.
    async fn end(mut self, plan: &Plan) -> Result<Record, Broken> {
        let left = plan.until.after(PATIENCE).since(Instant::now());
        let Ok(status) = tokio::time::timeout(left, self.child.wait()).await else {
            return Err(Broken::new(format!("{} did not end within {PATIENCE:?} of the run's end", self.name)));
        };
        let status: ExitStatus = status?;
        let killed = status.signal() == Some(Signal::KILL.as_raw());
        let as_planned = if self.dies { killed } else { status.success() };
        if !as_planned {
            return Err(Broken::new(format!("{} ended with {status}; see {}", self.name, self.log.display())));
        }
        Record::read(self.name, &std::fs::read_to_string(&self.log)?, killed)
    }
}
