//! `cargo bench -p lock-zk`: every figure beside its baseline, measured in turn in the same run on servers of its own.
//!
//! `cargo bench -p lock-zk -- uncontended` runs one part; `--quick` runs each for a fraction of the time. The parts:
//! `uncontended`, `connect`, `batches`, `handover`, `processes`, `idle`, `failover`, `churn`,
//! `unfair`, `storm`, and with the feature `zookeeper-async` `crates`.

mod batches;
mod churn;
mod connect;
#[cfg(feature = "zookeeper-async")]
mod crates;
mod curator;
mod failover;
mod handover;
mod idle;
mod plain;
mod processes;
mod stats;
mod storm;
mod turns;
mod uncontended;
mod unfair;

use std::time::Duration;

use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{ZkConfig, ZkLocks};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The things that every part needs.
struct Bench {
    server: ZooKeeperServer,
    /// The time for which each variant is measured in one round.
    round: Duration,
    /// The number of rounds: the variants take turns in each.
    rounds: u32,
}

impl Bench {
    async fn locks(&self) -> Outcome<ZkLocks> {
        locks(self.server.url(), Duration::from_secs(10)).await
    }

    /// Every request that the server has received, pings included.
    async fn requests(&self) -> Outcome<u64> {
        let requests = self.server.figure("zk_packets_received").await;
        Ok(u64::try_from(requests.map_err(|error| error.to_string())?)?)
    }
}

/// A client whose session ends this long after it was heard last, of servers with the testkit's tick.
async fn locks(url: &str, session: Duration) -> Outcome<ZkLocks> {
    Ok(ZkLocks::connect_with(config(url, session)).await?)
}

fn config(url: &str, session: Duration) -> ZkConfig {
    ZkConfig::new(url).with_prefix("bench").with_session_timeout(session).with_tick_time(Duration::from_millis(200))
}

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(url) = processes::is_child() {
        return runtime.block_on(processes::child(url));
    }
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let wanted = |part: &str| args.iter().all(|arg| arg.starts_with("--")) || args.iter().any(|arg| arg == part);
    runtime.block_on(async {
        let server = ZooKeeperServer::start_with(&ZooKeeperOptions::new().for_benchmarks()).await?;
        let (round, rounds) = if quick { (Duration::from_millis(300), 2) } else { (Duration::from_secs(2), 5) };
        let bench = Bench { server, round, rounds };
        if wanted("uncontended") {
            uncontended::run(&bench).await?;
        }
        if wanted("connect") {
            connect::run(&bench).await?;
        }
        if wanted("batches") {
            batches::run(&bench).await?;
        }
        if wanted("handover") {
            handover::run(&bench).await?;
        }
        if wanted("processes") {
            processes::run(&bench).await?;
        }
        if wanted("idle") {
            idle::run(&bench).await?;
        }
        if wanted("failover") {
            failover::run(&bench).await?;
        }
        if wanted("churn") {
            churn::run(&bench).await?;
        }
        if wanted("unfair") {
            unfair::run(&bench).await?;
        }
        if wanted("storm") {
            storm::run(&bench).await?;
        }
        #[cfg(feature = "zookeeper-async")]
        if wanted("crates") {
            crates::run(&bench).await?;
        }
        Ok(())
    })
}
