//! Our locks and those of other libraries, on one key of one server: nobody overlaps, nobody starves, one is killed.
//! `scripts/interop` fetches the libraries and runs it.

mod crowd;
mod late;
mod member;
mod plan;
mod record;
mod run;
mod scene;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lock_testkit::HarnessError;

use crate::crowd::Crowd;
use crate::plan::Plan;
use crate::scene::Scene;

/// The seconds in which everybody has its special turn, and the others go on after a death.
const LEAST_SECONDS: u64 = 45;

#[derive(Parser, Debug)]
#[command(name = "interop", about = "Processes of several libraries take turns with one key of a server")]
struct Cli {
    /// The scene: the members, and the server that they share
    scene: Scene,

    /// The length of the run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(10..=600))]
    seconds: u64,

    /// The member that is killed while it holds the lock
    #[arg(long, value_name = "MEMBER", default_value = "ours-2")]
    kill: String,

    /// Instead, so many of ours beside so many of theirs, who are judged by their shares: OURS+THEIRS, such as 3+1
    #[arg(long, value_name = "COUNTS")]
    crowd: Option<Crowd>,

    /// Instead, at curator-semaphore: so many times Curator's client is stopped beyond its session and goes on while ours
    /// takes the only permit
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    late: Option<u32>,

    /// The ms for which a crowd's members hold the lock
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=5000))]
    hold: u64,

    /// The ms for which a crowd's members want nothing after a release
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=5000))]
    think: u64,

    /// The member that ignores the lock (it takes another one): to see that such a run is rejected
    #[arg(long = "break", value_name = "MEMBER")]
    broken: Option<String>,

    /// The directory of everybody's logs
    #[arg(long, value_name = "DIRECTORY", default_value = "target/interop/logs")]
    logs: PathBuf,

    /// For our own members: the plan
    #[arg(long, hide = true)]
    member: Option<String>,
}

fn main() -> ExitCode {
    match start(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("interop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything went as it must.
#[tokio::main]
async fn start(cli: &Cli) -> Result<bool, HarnessError> {
    if let Some(plan) = &cli.member {
        member::run(&serde_json::from_str::<Plan>(plan)?).await?;
        return Ok(true);
    }
    if let Some(rounds) = cli.late {
        let outcome = late::run(rounds).await?;
        println!("{outcome}");
        return Ok(outcome.is_clean());
    }
    if cli.crowd.is_none() && cli.seconds < LEAST_SECONDS {
        return Err(HarnessError::new(format!("only a crowd's run may be shorter than {LEAST_SECONDS} s")));
    }
    let is_known = |name: &&String| cli.scene.members().iter().any(|(member, _)| member == name);
    if let Some(name) = [Some(&cli.kill), cli.broken.as_ref()].into_iter().flatten().find(|name| !is_known(name)) {
        return Err(HarnessError::new(format!("{name} takes no part in {:?}", cli.scene)));
    }
    let verdict = run::run(cli).await?;
    println!("{verdict}");
    Ok(verdict.is_clean())
}
