//! Torture: processes that use every kind of lock of a backend while they, and its servers, are frozen, killed and
//! restarted; everything is written down and judged. See `README.md`.
//!
//! `run.rs` is one run. It starts the workers, which are this program again: `work.rs` does one of the works of `workload.rs`
//! (`worker.rs`, `jobs.rs`, `leaders.rs`), as `plan.rs` says. They work on the counters of `resource.rs`, and talk to the run by
//! `exchange.rs`. `nemesis.rs` injects the faults, each of which implements the trait of `faults.rs`. At the end the run looks at the
//! server itself, and the checker judges. `system.rs` is what a run needs to know of a backend.

mod exchange;
mod faults;
mod jobs;
mod leaders;
mod line;
mod links;
mod memcached;
mod memory;
mod nemesis;
mod plan;
mod progress;
mod readyz;
mod redis;
mod resource;
mod run;
mod servers;
mod stalls;
mod system;
mod theft;
mod work;
mod worker;
mod workload;
mod zookeeper;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use lock_testkit::HarnessError;
use lock_testkit_checker::Verdict;
use lock_testkit_servers::zookeeper::tick_time;

use crate::plan::Plan;
use crate::workload::Workload;

#[derive(Parser, Debug)]
#[command(name = "torture", about = "Uses every kind of lock under faults, and judges what happened")]
struct Cli {
    /// The backend
    #[arg(long, default_value = "redis")]
    backend: Backend,

    /// The work of the workers
    #[arg(long, default_value = "locks")]
    workload: Workload,

    /// An existing server, instead of one that is started; only workers and their links are hurt then
    #[arg(long)]
    url: Option<String>,

    /// The length of the run
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,

    /// The seed that replays the order of faults and work; chosen at random if it is not given
    #[arg(long)]
    seed: Option<u64>,

    /// The faults by name, separated by commas; `all` or `none`
    #[arg(long, default_value = "all")]
    faults: String,

    /// The number of slots of jobs, or of faults after which another one leads, without which the run has seen too little
    #[arg(long)]
    least: Option<usize>,

    /// The number of processes (of the backend in memory: clients) that work
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    workers: u32,

    /// The TTL of every lease, in milliseconds
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(500..=60_000))]
    ttl_ms: u64,

    /// The directory of the history and its picture
    #[arg(long, value_name = "DIRECTORY", default_value = "target/torture")]
    out: PathBuf,

    /// For the processes that are started: what to do
    #[arg(long, hide = true)]
    worker: Option<String>,
}

/// A backend that can be tortured.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Backend {
    Memcached,
    Memory,
    Redis,
    Zookeeper,
}

fn minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=100_000.0).contains(&minutes) { Ok(minutes) } else { Err("between 0.1 and 100000".to_owned()) }
}

fn main() -> ExitCode {
    match start(Cli::parse()) {
        Ok(Verdict::Ok) => ExitCode::SUCCESS,
        Ok(Verdict::Illegal) => ExitCode::from(1),
        Ok(Verdict::Unknown) => ExitCode::from(2),
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::from(3)
        }
    }
}

#[tokio::main]
async fn start(cli: Cli) -> Result<Verdict, HarnessError> {
    if let Some(plan) = &cli.worker {
        let plan: Plan = serde_json::from_str(plan)?;
        let locks = if plan.url.starts_with("memcached:") {
            memcached::connect(&plan.url, &plan.namespace, plan.ttl).await?
        } else if plan.url.starts_with("zk://") {
            zookeeper::connect(&plan.url, &plan.namespace, tick_time(plan.named)?).await?
        } else {
            redis::connect(&plan.url, &plan.namespace).await?
        };
        work::carry_out(&plan, locks).await?;
        return Ok(Verdict::Ok);
    }
    match cli.backend {
        Backend::Memcached => {
            let ttl = Duration::from_millis(cli.ttl_ms);
            run::run(&cli, memcached::Memcached::start(cli.url.as_deref(), ttl).await?).await
        }
        Backend::Memory => run::run(&cli, memory::Memory::new()).await,
        Backend::Redis => run::run(&cli, redis::Redis::start(cli.url.as_deref()).await?).await,
        Backend::Zookeeper => run::run(&cli, zookeeper::ZooKeeper::start(cli.url.as_deref()).await?).await,
    }
}
