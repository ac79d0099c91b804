//! Hand-over between eight processes, one task each, on one name: from the call of `release` until the next holder knows
//! in its own process, and the rate, both against BLPOP; the commands that it takes; every process's share.

use std::process::Stdio;
use std::time::{Duration, Instant};

use bench_support::{Series, jain};
use lock_core::clock::{Clock, SystemClock};
use redis::cmd;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::{Bench, Outcome, bare, storm, waiters};

pub(crate) const PROCESSES: usize = 8;
pub(crate) const URL: &str = "LOCK_BENCH_CHILD_URL";
pub(crate) const VARIANT: &str = "LOCK_BENCH_CHILD_VARIANT";

/// The server's URL, if this process was started by [`run`].
pub(crate) fn is_child() -> Option<String> {
    std::env::var(URL).ok()
}

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Contended hand-over, {PROCESSES} processes\n");
    println!("| variant | median µs | p95 µs | hand-overs/s | ÷ BLPOP | commands per hand-over | shares | Jain |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut all = [Seen::new("tokens")?, Seen::new("locks")?];
    for _ in 0..bench.rounds {
        for seen in &mut all {
            round(bench, seen).await?;
        }
    }
    let list = all[0].series.per_second();
    for (seen, name) in all.iter().zip(["BLPOP + RPUSH", "lock + release"]) {
        println!(
            "| {name} | {:.1} | {:.1} | {:.0} | {:.2} | {:.2} | {:?} | {:.3} |",
            seen.series.micros(0.5),
            seen.series.micros(0.95),
            seen.series.per_second(),
            seen.series.per_second() / list,
            seen.commands as f64 / seen.series.count as f64,
            seen.shares,
            jain(&seen.shares)
        );
    }
    Ok(())
}

/// The figures of one variant so far.
pub(crate) struct Seen {
    variant: &'static str,
    pub(crate) series: Series,
    pub(crate) shares: [u64; PROCESSES],
    commands: u64,
}

impl Seen {
    pub(crate) fn new(variant: &'static str) -> Outcome<Self> {
        Ok(Self { variant, series: Series::new()?, shares: [0; PROCESSES], commands: 0 })
    }

    /// Takes what every process did in one round.
    pub(crate) fn add(&mut self, turns: &[Vec<Turn>], time: Duration) {
        self.shares.iter_mut().zip(turns).for_each(|(sum, turns)| *sum += turns.len() as u64);
        let mut turns: Vec<_> = turns.iter().flatten().collect();
        turns.sort();
        for (one, next) in turns.iter().zip(turns.iter().skip(1)) {
            self.series.record(Duration::from_nanos(next.0.saturating_sub(one.1)));
        }
        self.series.time += time;
    }
}

/// One turn of a process: when it knew that it was its own, and when it began to pass it on, in nanoseconds of the
/// machine's clock since boot.
pub(crate) type Turn = (u64, u64);

fn now() -> u64 {
    u64::try_from(SystemClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}

/// Has the processes take turns, and counts the server's commands meanwhile.
async fn round(bench: &Bench, seen: &mut Seen) -> Outcome {
    let children = Children::start(&bench.url, seen.variant).await?;
    let mut connection = bare::connection(bench).await?;
    if seen.variant == "tokens" {
        let _: i64 = cmd("DEL").arg("bench:tokens").query_async(&mut connection).await?;
        let _: i64 = cmd("RPUSH").arg("bench:tokens").arg("token").query_async(&mut connection).await?;
    }
    let before = bare::client_commands(&mut connection).await?;
    let turns = children.take_turns(bench.round).await?;
    seen.commands += bare::client_commands(&mut connection).await? - before;
    seen.add(&turns, bench.round);
    Ok(())
}

/// The processes of one round, ready to begin.
pub(crate) struct Children(Vec<(Child, Lines<BufReader<ChildStdout>>)>);

impl Children {
    pub(crate) async fn start(url: &str, variant: &str) -> Outcome<Self> {
        let mut children = Vec::new();
        for _ in 0..PROCESSES {
            let mut child = Command::new(std::env::current_exe()?)
                .env(URL, url)
                .env(VARIANT, variant)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .kill_on_drop(true)
                .spawn()?;
            let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
            children.push((child, lines));
        }
        for (_, lines) in &mut children {
            lines.next_line().await?.ok_or("a child ended before it was ready")?;
        }
        Ok(Self(children))
    }

    /// Lets all of them begin at once, and collects their turns.
    pub(crate) async fn take_turns(mut self, time: Duration) -> Outcome<Vec<Vec<Turn>>> {
        let go = format!("{}\n", time.as_millis());
        for (child, _) in &mut self.0 {
            child.stdin.as_mut().ok_or("no stdin")?.write_all(go.as_bytes()).await?;
        }
        let mut turns = Vec::new();
        for (_, lines) in &mut self.0 {
            let line = lines.next_line().await?.ok_or("a child ended without its turns")?;
            turns.push(serde_json::from_str(&line)?);
        }
        for (child, _) in &mut self.0 {
            wait(child).await?;
        }
        Ok(turns)
    }
}

async fn wait(child: &mut Child) -> Outcome {
    let status = child.wait().await?;
    if status.success() { Ok(()) } else { Err(format!("a child ended with {status}").into()) }
}

/// One process: says that it is ready, waits for the word, takes turns, and says when.
pub(crate) async fn child(url: String) -> Outcome {
    if let Some(outcome) = storm::child(&url).await {
        return outcome;
    }
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    let bench = Bench { url, round: Duration::ZERO, rounds: 1 };
    let mut turns: Vec<Turn> = Vec::new();
    if std::env::var(VARIANT)? == "tokens" {
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(&*bench.url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let _: (String, String) = cmd("BLPOP").arg("bench:tokens").arg(0).query_async(&mut connection).await?;
            turns.push((now(), now()));
            let _: i64 = cmd("RPUSH").arg("bench:tokens").arg("token").query_async(&mut connection).await?;
        }
    } else {
        let mutex = match std::env::var(VARIANT)?.as_str() {
            "quorum" => waiters::connect(bench.url.split(',')).await?.mutex("processes"),
            _ => bench.locks().await?.mutex("processes"),
        };
        let end = ready(&mut input).await?;
        while Instant::now() < end {
            let guard = mutex.lock().await?;
            turns.push((now(), now()));
            guard.release().await?;
        }
    }
    println!("{}", serde_json::to_string(&turns)?);
    Ok(())
}

async fn ready(input: &mut tokio::io::Lines<BufReader<tokio::io::Stdin>>) -> Outcome<Instant> {
    println!("ready");
    let milliseconds = input.next_line().await?.ok_or("no word came")?.parse()?;
    Ok(Instant::now() + Duration::from_millis(milliseconds))
}
