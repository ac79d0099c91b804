//! Lock and release on five independent servers, all up or two of them not, each on servers of its own and in turn.

use std::time::Instant;

use bench_support::{Series, for_a_while};
use lock_redis::{QuorumConfig, QuorumLocks};
use lock_testkit::HarnessError;
use lock_testkit_servers::redis::RedisServer;

use crate::ours::Ours;
use crate::{Bench, Outcome};

/// The servers that fail.
const TWO: [usize; 2] = [1, 3];

pub(crate) async fn run(bench: &Bench) -> Outcome {
    println!("\n## Quorum of five: lock + release\n");
    println!("| tasks | servers | median µs | p99 µs | cycles/s | median ÷ five up |");
    println!("|---|---|---|---|---|---|");
    for tasks in [1, 64] {
        let mut variants = Vec::new();
        for state in [State::Up, State::Down, State::JustStalled, State::Stalled] {
            variants.push((state, Quorum::start(state).await?, Series::new()?));
        }
        for _ in 0..bench.rounds {
            for (_, quorum, series) in &mut variants {
                quorum.round(bench, tasks, series).await?;
            }
        }
        let up = variants[0].2.micros(0.5);
        for (state, _, series) in &variants {
            let (median, p99) = (series.micros(0.5), series.micros(0.99));
            let (name, rate) = (state.name(), series.per_second());
            println!("| {tasks} | {name} | {median:.1} | {p99:.1} | {rate:.0} | {:.2} |", median / up);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// Killed before the first round.
    Down,
    /// Frozen at the beginning of each round: the client has not noticed it yet.
    JustStalled,
    /// Frozen before the first round, for long enough to be noticed.
    Stalled,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Up => "five up",
            Self::Down => "two down",
            Self::JustStalled => "two stalled, not noticed yet",
            Self::Stalled => "two stalled",
        }
    }
}

struct Quorum {
    state: State,
    servers: Vec<RedisServer>,
    locks: QuorumLocks,
}

impl Quorum {
    async fn start(state: State) -> Outcome<Self> {
        let mut servers = Vec::new();
        for _ in 0..5 {
            servers.push(RedisServer::start_own().await?);
        }
        let config = QuorumConfig::new(servers.iter().map(RedisServer::url)).with_prefix("bench");
        let locks = QuorumLocks::connect_with(config.with_young_servers(true)).await?;
        let quorum = Self { state, servers, locks };
        quorum.until_all_are_asked().await?;
        for i in TWO {
            match state {
                State::Up | State::JustStalled => {}
                State::Down => whole(quorum.servers[i].kill())?,
                State::Stalled => whole(quorum.servers[i].stop())?,
            }
        }
        if state == State::Stalled {
            // Two timeouts of 2 s make the client give a connection up.
            let began = Instant::now();
            while began.elapsed().as_secs() < 6 {
                quorum.locks.mutex("notice").lock().await?.release().await?;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        Ok(quorum)
    }

    /// Locks until every server has the lock: a client that has connected to a majority dials the others meanwhile.
    async fn until_all_are_asked(&self) -> Outcome {
        loop {
            let held = self.locks.mutex("asked").lock().await?;
            let mut on = 0;
            for server in &self.servers {
                let exists = whole(whole(server.client())?.command(&["EXISTS", "bench:mutex:{asked}"]).await)?;
                on += usize::from(exists.as_int() == Some(1));
            }
            held.release().await?;
            if on == self.servers.len() {
                return Ok(());
            }
        }
    }

    async fn round(&self, bench: &Bench, tasks: usize, series: &mut Series) -> Outcome {
        if self.state != State::JustStalled {
            return self.cycles(bench, tasks, series).await;
        }
        for i in TWO {
            whole(self.servers[i].stop())?;
        }
        let outcome = self.cycles(bench, tasks, series).await;
        for i in TWO {
            whole(self.servers[i].cont())?;
        }
        self.until_all_are_asked().await?;
        outcome
    }

    async fn cycles(&self, bench: &Bench, tasks: usize, series: &mut Series) -> Outcome {
        let cycle = |task| Ours::Mutex(self.locks.mutex(format!("task {task}")));
        for_a_while(tasks, bench.round, series, cycle).await
    }
}

/// The testkit's own failure is a message.
fn whole<T>(outcome: Result<T, HarnessError>) -> Outcome<T> {
    outcome.map_err(|error| error.to_string().into())
}
