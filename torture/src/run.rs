//! One run: workers, faults, ground truth, and the verdict.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{GrantId, Guarantees, Locks, Support};
use lock_testkit::{HarnessError, SeededRng};
use lock_testkit_checker::history::event::{Kind, Residue, Run, Truth};
use lock_testkit_checker::history::recipe::RecordSeen;
use lock_testkit_checker::history::{History, Recorder, Rules, What, now};
use lock_testkit_checker::report::page;
use lock_testkit_checker::{Verdict, picture};
use rustix::process::Pid;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::Cli;
use crate::nemesis::{Nemesis, Prey};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::system::{Body, SystemUnderTest, Worker};
use crate::worker::{COUNTERS, NAMES};
use crate::workload::Workload;
use crate::{jobs, readyz, resource, stalls, work};

/// Between two looks at what the server has.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For workers to end after the run's end, beyond a few leases.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs, judges and draws.
pub(crate) async fn run<A: SystemUnderTest>(cli: &Cli, system: A) -> Result<Verdict, HarnessError> {
    let system = Arc::new(system);
    let seed = match cli.seed {
        Some(seed) => seed,
        None => u64::from_le_bytes(GrantId::random()?.as_bytes()[..8].try_into()?) >> 16,
    };
    let stage = Stage::set(cli, &*system, seed).await?;
    println!("{}", stage.how_to_replay(cli));
    let progress = Progress::begin(stage.length, stage.history.clone(), stage.rules.clone());
    let mut workers = Vec::new();
    for _ in 0..cli.workers {
        workers.push(stage.start(&system, workers.len() as u64)?);
    }
    let (namespace, recorder) = (stage.namespace.clone(), stage.recorder.clone());
    let eyes = match cli.workload {
        Workload::Locks => tokio::spawn(look(system.clone(), namespace, recorder)),
        Workload::Once => tokio::spawn(look_at_records(stage.locks.clone(), &jobs::RECORDS, recorder)),
        Workload::Leader => tokio::spawn(look_at_records(stage.locks.clone(), &[readyz::ELECTION], recorder)),
    };
    let nemesis = Nemesis {
        names: stage.faults.clone(),
        rng: SeededRng::new(seed),
        ttl: stage.ttl,
        recorder: stage.recorder.clone(),
        until: stage.until,
        prey: stage.prey.clone(),
    };
    let mut next = u64::from(cli.workers);
    let replace = || {
        next += 1;
        stage.start(&system, next - 1)
    };
    nemesis.run(&*system, &mut workers, &progress, replace).await?;
    let ended = stage.end_all(workers).await;
    eyes.abort();
    if ended.is_ok() {
        stage.look_for_residue(&*system).await?;
        stage.recorder.record(What::End);
    }
    drop(progress);
    // Who waits for ever for what is never released shows in the history why.
    match stage.judge()? {
        Verdict::Illegal => Ok(Verdict::Illegal),
        verdict => ended.map(|()| verdict),
    }
}

/// The parts of a run that all workers share.
struct Stage {
    seed: u64,
    namespace: String,
    ttl: Duration,
    workload: Workload,
    /// The names of the faults that are to befall it.
    faults: Vec<&'static str>,
    length: Duration,
    from: u64,
    until: u64,
    /// A client of this process.
    locks: Locks,
    /// The prey of the faults.
    prey: Option<Prey>,
    rules: Rules,
    history: PathBuf,
    picture: PathBuf,
    recorder: Recorder,
    resources: std::net::SocketAddr,
    url: String,
    /// Whether the servers were there before.
    named: bool,
}

impl Stage {
    async fn set(cli: &Cli, system: &dyn SystemUnderTest, seed: u64) -> Result<Self, HarnessError> {
        let workload = cli.workload;
        if workload == Workload::Locks && cli.least.is_some() {
            return Err(HarnessError::new("--least is for jobs and leaders: locks have no number of their own"));
        }
        std::fs::create_dir_all(&cli.out)?;
        let name = match workload {
            Workload::Locks => format!("{}-{seed}", system.name()),
            _ => format!("{}-{}-{seed}", system.name(), workload.name()),
        };
        let history = std::path::absolute(cli.out.join(format!("{name}.jsonl")))?;
        let _ = std::fs::remove_file(&history);
        let recorder = Recorder::append(&history, "main")?;
        let (length, ttl) = (Duration::from_secs_f64(cli.minutes * 60.0), Duration::from_millis(cli.ttl_ms));
        let namespace = format!("torture-{}", GrantId::random()?);
        let locks = system.connect(&namespace).await?;
        // A new server may grant nothing at first.
        locks.mutex("first").lock().await?.release().await?;
        let guarantees = locks.guarantees();
        let mut rules = rules(system, &guarantees, length, cli.faults == "none");
        workload.expect(&mut rules, length, cli.least);
        let mut faults = Nemesis::choose(system, &cli.faults)?;
        faults.retain(|name| workload.bears(name, &guarantees));
        rules.records = Workload::keeps_records(&faults, &guarantees);
        let run = Run { backend: system.name().into(), seed: Some(seed), rules: rules.clone() };
        recorder.record(What::Run(Box::new(run)));
        stalls::watch(recorder.clone());
        let log = Recorder::append(&history, "resource")?;
        let (resources, prey) = match workload {
            Workload::Locks => (resource::serve(log).await?, None),
            Workload::Once => {
                let (address, at_work) = jobs::serve(log).await?;
                (address, Some(Prey::AtWork(at_work)))
            }
            Workload::Leader => {
                let askers = readyz::ask_all(log).await?;
                (askers.address, Some(Prey::Leader(askers.seen)))
            }
        };
        let from = now();
        Ok(Self {
            workload,
            faults,
            locks,
            prey,
            resources,
            from,
            seed,
            namespace,
            ttl,
            length,
            until: from + u64::try_from(length.as_nanos())?,
            rules,
            picture: history.with_extension("html"),
            history,
            recorder,
            url: system.url(),
            named: cli.url.is_some(),
        })
    }

    fn how_to_replay(&self, cli: &Cli) -> String {
        let backend = format!("{:?}", cli.backend).to_lowercase();
        let least = cli.least.map_or_else(String::new, |least| format!(" --least {least}"));
        format!(
            "torture --backend {backend} --workload {} --minutes {} --seed {} --faults {} --workers {} --ttl-ms {}{least}",
            self.workload.name(),
            cli.minutes,
            self.seed,
            cli.faults,
            cli.workers,
            cli.ttl_ms
        )
    }

    fn start<A: SystemUnderTest>(&self, system: &Arc<A>, number: u64) -> Result<Worker, HarnessError> {
        // A leader is to be cut off alone.
        let links = if self.workload == Workload::Leader { system.links()? } else { None };
        let plan = Plan {
            workload: self.workload,
            url: links.as_ref().map_or_else(|| self.url.clone(), |links| links.url().to_owned()),
            namespace: self.namespace.clone(),
            named: self.named,
            name: format!("w{number}"),
            seed: SeededRng::new(self.seed.wrapping_add(number)).next_u64(),
            ttl: self.ttl,
            from: self.from,
            until: self.until,
            history: self.history.clone(),
            resources: self.resources,
        };
        if !system.has_processes() {
            let (system, task) = (system.clone(), plan.clone());
            let body =
                tokio::spawn(async move { work::carry_out(&task, system.connect(&task.namespace).await?).await });
            return Ok(Worker { plan, body: Body::Task(body), pid: None, links });
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--worker").arg(serde_json::to_string(&plan)?).stdin(Stdio::null()).kill_on_drop(true);
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Worker { plan, body: Body::Process(child), pid, links })
    }

    async fn end_all(&self, workers: Vec<Worker>) -> Result<(), HarnessError> {
        for worker in workers {
            self.end(worker).await?;
        }
        Ok(())
    }

    async fn end(&self, worker: Worker) -> Result<(), HarnessError> {
        let left = Duration::from_nanos(self.until.saturating_sub(now())) + self.ttl * 10 + PATIENCE;
        let name = &worker.plan.name;
        let ended = match worker.body {
            Body::Process(mut child) => {
                timeout(left, child.wait()).await.map(|status| status.is_ok_and(|s| s.success()))
            }
            Body::Task(task) => timeout(left, task).await.map(|outcome| outcome.is_ok_and(|outcome| outcome.is_ok())),
        };
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(HarnessError::new(format!("{name} did not work to its end; what it said is above"))),
            Err(_) => Err(HarnessError::new(format!("{name} did not end"))),
        }
    }

    /// Looks for residue of the dead: it ends with their leases and their places in queues.
    async fn look_for_residue(&self, system: &dyn SystemUnderTest) -> Result<(), HarnessError> {
        let due = now() + u64::try_from((self.ttl * 2 + Duration::from_secs(5)).as_nanos())?;
        loop {
            let Some(entries) = system.residue(&self.namespace).await else { return Ok(()) };
            let entries = entries?;
            if entries.is_empty() || now() >= due {
                let entries = entries.into_iter().map(Into::into).collect();
                self.recorder.record(What::Residue(Residue { entries }));
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn judge(&self) -> Result<Verdict, HarnessError> {
        let picture = picture(&History::read([&self.history])?, None);
        std::fs::write(&self.picture, page(&picture)?)?;
        println!("{}", picture.judgement);
        println!("history: {}\npicture: {}", self.history.display(), self.picture.display());
        Ok(picture.judgement.verdict)
    }
}

/// Returns the backend's promises, with bounds that hold on a machine that is shared.
fn rules(system: &dyn SystemUnderTest, guarantees: &Guarantees, length: Duration, calm: bool) -> Rules {
    let mut rules = Rules::default();
    rules.fencing = guarantees.fencing != Support::No;
    rules.fifo = guarantees.fifo == Support::Yes;
    rules.enqueue = 500_000_000;
    rules.recovery = u64::try_from(system.recovery().as_nanos()).unwrap_or(u64::MAX);
    rules.tries_meet = system.tries_meet();
    // Six faults a minute are the plan; fewer are enough where faults take their time.
    let seconds = usize::try_from(length.as_secs()).unwrap_or(usize::MAX);
    rules.least.faults = if calm { 0 } else { (seconds / 30).max(1) };
    rules.least.residues = 1;
    rules
}

/// Writes down what the server says of the mutex before the counters, and of the other ones in turn.
async fn look<A: SystemUnderTest>(system: Arc<A>, namespace: String, recorder: Recorder) {
    for other in NAMES.into_iter().cycle() {
        for mutex in [COUNTERS, other] {
            let after = now();
            let holder = system.holder(&namespace, mutex).await;
            stalls::note_answer(&recorder, after, now());
            if let Some(holder) = holder {
                let holders = holder.into_iter().map(Into::into).collect();
                recorder.record(What::Truth(Truth { res: mutex.into(), kind: Kind::Mutex, after, holders }));
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Writes down what the server says of these records.
async fn look_at_records(locks: Locks, names: &'static [&'static str], recorder: Recorder) {
    for name in names.iter().copied().cycle() {
        let after = now();
        // Kept by this backend: the workers would not have begun.
        let Ok(recorded) = locks.recorded(name) else { return };
        let seen = recorded.read().await;
        stalls::note_answer(&recorder, after, now());
        if let Ok(Some(record)) = seen {
            let (term, written) = (record.term.as_u64(), record.written.map(|token| token.as_u64()));
            recorder.record(What::Record(RecordSeen { res: name.into(), term, written, after }));
        }
        sleep(LOOK_EVERY).await;
    }
}
