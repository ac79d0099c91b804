//! The turns of eight processes at one name.

use std::process::Stdio;
use std::time::Duration;

use bench_support::Series;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Outcome;

pub(crate) const PROCESSES: usize = 8;
pub(crate) const URL: &str = "LOCK_BENCH_CHILD_URL";
pub(crate) const VARIANT: &str = "LOCK_BENCH_CHILD_VARIANT";

/// The figures of one variant so far.
pub(crate) struct Seen {
    pub(crate) variant: &'static str,
    pub(crate) series: Series,
    pub(crate) shares: [u64; PROCESSES],
    pub(crate) commands: u64,
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
