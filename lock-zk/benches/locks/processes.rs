//! Eight processes, one task each, on one name: requests per hand-over, and every process's share.

use std::process::Stdio;
use std::time::{Duration, Instant};

use bench_support::jain;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{Bench, Outcome, locks};

const PROCESSES: usize = 8;
const URL: &str = "LOCK_BENCH_CHILD_URL";

/// The server's URL, if this process was started by [`Process::start`].
pub(crate) fn is_child() -> Option<String> {
    std::env::var(URL).ok()
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, {PROCESSES} processes\n");
    println!("| hand-overs/s | requests per hand-over | shares | Jain | bar |\n|---|---|---|---|---|");
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(bench.server.url(), Duration::from_secs(10)).await?);
    }
    let time = bench.round * bench.rounds;
    let before = bench.requests().await?;
    for process in &mut processes {
        process.say(&time.as_millis().to_string()).await?;
    }
    let mut shares = Vec::new();
    for process in &mut processes {
        shares.push(process.line().await?.parse()?);
    }
    let turns: u64 = shares.iter().sum();
    let requests = (bench.requests().await? - before) as f64 / turns as f64;
    let rate = turns as f64 / time.as_secs_f64();
    println!("| {rate:.0} | {requests:.2} | {shares:?} | {:.3} | ≤ 5 requests; Jain ≥ 0.95 |", jain(&shares));
    Ok(())
}

/// A client in a process of its own. Killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) async fn start(url: &str, session: Duration) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(URL, format!("{url} {}", session.as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        let mut process = Self { child, lines };
        process.line().await?;
        Ok(process)
    }

    pub(crate) async fn say(&mut self, word: &str) -> Outcome {
        let input = self.child.stdin.as_mut().ok_or("no stdin")?;
        Ok(input.write_all(format!("{word}\n").as_bytes()).await?)
    }

    pub(crate) async fn line(&mut self) -> Outcome<String> {
        Ok(self.lines.next_line().await?.ok_or("a child ended")?)
    }

    /// SIGKILL.
    pub(crate) async fn kill(&mut self) -> Outcome {
        Ok(self.child.kill().await?)
    }
}

/// One process: says that it is ready, and does what it is told: takes turns for so many milliseconds and says how many it
/// had, or takes a lock, says so, and holds it.
pub(crate) async fn child(order: String) -> Outcome {
    let (url, session) = order.split_once(' ').ok_or("no session timeout")?;
    let locks = locks(url, Duration::from_millis(session.parse()?)).await?;
    println!("ready");
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let word = input.next_line().await?.ok_or("no word came")?;
    let Ok(milliseconds) = word.parse() else {
        let held = locks.mutex(word).lock().await?;
        println!("holds");
        input.next_line().await?;
        return Ok(held.release().await?);
    };
    let (mutex, end) = (locks.mutex("processes"), Instant::now() + Duration::from_millis(milliseconds));
    let mut count = 0_u64;
    while Instant::now() < end {
        mutex.lock().await?.release().await?;
        count += 1;
    }
    println!("{count}");
    Ok(locks.close().await?)
}
