//! A small scheduler: several processes with the same cron expression, each run begun by one of them at most. When one is killed, its
//! run is not done again, nor are those that follow while its lease or session lasts.
//!
//! `cargo run --example scheduler -- redis://127.0.0.1:6379 --runs 10` or `-- zk://127.0.0.1:2181`. It starts three processes, kills the
//! one that is at it in the middle of a run, and counts the runs.

use std::collections::HashSet;
use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use clap::Parser;
use croner::Cron;
use lock_core::{Guarantee, Locks};
use lock_recipes::{Once, Outcome, Slot};
use lock_redis::RedisLocks;
use lock_zk::ZkLocks;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

/// Every second.
const WHEN: &str = "* * * * * *";
const PROCESSES: usize = 3;
/// The time of a run: enough to be killed in the middle of it.
const WORK: Duration = Duration::from_millis(500);
/// A run is lost if its process dies in the middle of it, and so are those that follow while its lease or session lasts.
const TTL: Duration = Duration::from_secs(3);
const LONGEST_GAP: u64 = 15_000;

#[derive(Parser)]
struct Args {
    /// The server of the locks.
    url: String,
    /// The number of runs to wait for.
    #[arg(long, default_value_t = 8)]
    runs: usize,
    /// Be one of the processes.
    #[arg(long, hide = true)]
    worker: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    if args.worker { work(&args.url).await } else { watch(&args).await }
}

async fn open(url: &str) -> Result<Locks, Box<dyn Error>> {
    match url.split_once(':') {
        Some(("redis", _)) => Ok(RedisLocks::connect(url).await?.into()),
        Some(("zk", _)) => Ok(ZkLocks::connect(url).await?.into()),
        _ => Err(format!("{url:?} is none of redis://… and zk://…").into()),
    }
}

/// One process: at each planned time it asks whether the run is still to be done. That is all there is to it.
async fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let lock = open(url).await?.recorded("reports")?.with_ttl(TTL);
    // A restarted server that knows no slots would have the last one run again.
    let once = Once::new(lock).with_required(&[Guarantee::RecordAcrossRestart])?;
    let cron: Cron = WHEN.parse()?;
    loop {
        let planned: DateTime<Utc> = cron.find_next_occurrence(&Utc::now(), false)?;
        tokio::time::sleep((planned - Utc::now()).to_std().unwrap_or_default()).await;
        let slot = Slot::at(SystemTime::from(planned));
        let job = |_token| async move {
            println!("begins {slot}");
            tokio::time::sleep(WORK).await;
        };
        match once.run(slot, job).await {
            Ok(Outcome::Ran(())) => println!("done {slot}"),
            Ok(_) => {} // another one has done it, or is at it
            Err(error) => eprintln!("{slot}: {error}: {}", error.error()),
        }
    }
}

/// Starts the processes, kills one of them, and sees each run done once.
async fn watch(args: &Args) -> Result<(), Box<dyn Error>> {
    let (ran, mut runs) = mpsc::channel(64);
    let mut workers = Vec::new();
    for number in 0..PROCESSES {
        let mut worker = start(&args.url)?;
        let lines = worker.stdout.take().ok_or("a process without an output")?;
        let ran = ran.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(lines).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if ran.send((number, line)).await.is_err() {
                    return;
                }
            }
        });
        workers.push(worker);
    }
    drop(ran);
    let (mut begun, mut done, mut last) = (HashSet::new(), HashSet::new(), None);
    let mut killed = None;
    while done.len() < args.runs {
        let next = tokio::time::timeout(Duration::from_millis(2 * LONGEST_GAP), runs.recv()).await?;
        let (number, line) = next.ok_or("every process has ended")?;
        let (what, slot) = line.split_once(' ').ok_or("a line says what was done")?;
        let slot: u64 = slot.parse()?;
        if what == "begins" {
            if !begun.insert(slot) {
                return Err(format!("the run of {slot} was begun twice").into());
            }
            if killed.is_none() && done.len() >= args.runs / 2 {
                println!("process {number} is killed in the run of {slot}");
                workers[number].kill().await?;
                killed = Some(slot);
            }
            continue;
        }
        println!("process {number} has done the run of {slot}");
        done.insert(slot);
        if let Some(last) = last.replace(slot)
            && slot.saturating_sub(last) > LONGEST_GAP
        {
            return Err(format!("nothing was run between {last} and {slot}").into());
        }
    }
    if killed.is_none_or(|slot| done.contains(&slot)) {
        return Err("the process was killed too late".into());
    }
    for worker in &mut workers {
        worker.kill().await?;
    }
    println!("{} runs, each done once", done.len());
    Ok(())
}

fn start(url: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args([url, "--worker"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}
