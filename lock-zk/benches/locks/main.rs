//! `cargo bench -p lock-zk`: every figure beside its baseline, measured in turn in the same run on servers of its own.
//!
//! `cargo bench -p lock-zk -- uncontended` runs one part; `--quick` runs each for a fraction of the time. The parts
//! are [`PARTS`].

mod batches;
mod churn;
mod connect;
#[cfg(feature = "zookeeper-async")]
mod crates;
mod curator;
mod failover;
mod far;
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

use bench_support::{Outcome, Plan};
use lock_testkit_servers::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use lock_zk::{ZkConfig, ZkLocks};

/// The parts that can be asked for by name; `crates` needs the feature `zookeeper-async`.
const PARTS: [&str; 13] = [
    "peers",
    "uncontended",
    "far",
    "connect",
    "batches",
    "handover",
    "processes",
    "idle",
    "failover",
    "churn",
    "unfair",
    "storm",
    "crates",
];

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
    let plan = Plan::of_args(&PARTS, Duration::from_secs(2))?;
    runtime.block_on(async {
        let server = ZooKeeperServer::start_with(&ZooKeeperOptions::new().for_benchmarks()).await?;
        let bench = Bench { server, round: plan.round, rounds: plan.rounds };
        if plan.wants("uncontended") {
            uncontended::run(&bench).await?;
        }
        if plan.wants("far") {
            far::run(&bench).await?;
        }
        if plan.wants("connect") {
            connect::run(&bench).await?;
        }
        if plan.wants("batches") {
            batches::run(&bench).await?;
        }
        if plan.wants("handover") {
            handover::run(&bench).await?;
        }
        if plan.wants("processes") {
            processes::run(&bench).await?;
        }
        if plan.wants("idle") {
            idle::run(&bench).await?;
        }
        if plan.wants("failover") {
            failover::run(&bench).await?;
        }
        if plan.wants("churn") {
            churn::run(&bench).await?;
        }
        if plan.wants("unfair") {
            unfair::run(&bench).await?;
        }
        if plan.wants("storm") {
            storm::run(&bench).await?;
        }
        #[cfg(feature = "zookeeper-async")]
        if plan.wants("crates") {
            crates::run(&bench).await?;
        }
        Outcome::Ok(())
    })?;
    // Last: the other libraries come from registries, which may be out of reach.
    if plan.wants("peers") {
        bench_support::peers(&plan, &["zookeeper"])?;
    }
    Ok(())
}
