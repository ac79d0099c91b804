//! `cargo bench -p lock-redis`: every figure beside its baseline, measured in turn in the same run on a server of its own.
//!
//! `cargo bench -p lock-redis -- uncontended` runs one part; `--quick` runs each for a fraction of the time. The parts
//! are [`PARTS`].

mod bare;
mod child;
mod churn;
mod clusters;
mod connect;
mod death;
mod handover;
mod held;
mod idle;
mod ours;
mod processes;
mod quorum;
mod shared;
mod storm;
mod turns;
mod uncontended;
mod waiters;

use std::time::Duration;

use bench_support::{Outcome, Plan};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit_servers::redis::RedisServer;

/// The deployment and the clients of every part.
#[derive(Debug, Clone)]
struct Bench {
    url: String,
    /// The time for which each variant is measured in one round.
    round: Duration,
    /// The number of rounds: the variants take turns in each.
    rounds: u32,
    /// Whether the figures are only to show that it works.
    is_quick: bool,
}

/// The parts that can be asked for by name.
const PARTS: [&str; 15] = [
    "peers",
    "held",
    "uncontended",
    "far",
    "connect",
    "death",
    "handover",
    "processes",
    "idle",
    "shared",
    "churn",
    "cluster",
    "quorum",
    "waiters",
    "storm",
];

impl Bench {
    async fn locks(&self) -> Outcome<RedisLocks> {
        Ok(RedisLocks::connect_with(RedisConfig::new(&self.url).with_prefix("bench")).await?)
    }
}

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(url) = child::is_child() {
        return runtime.block_on(child::run(url));
    }
    let scenes = storm::SCENES.map(|scene| format!("storm/{scene}"));
    let parts: Vec<_> = PARTS.into_iter().chain(scenes.iter().map(String::as_str)).collect();
    let plan = Plan::of_args(&parts, Duration::from_secs(1))?;
    let wanted = |part: &str| plan.wants(part);
    runtime.block_on(async {
        let server = RedisServer::start().await?;
        let bench =
            Bench { url: server.url().to_owned(), round: plan.round, rounds: plan.rounds, is_quick: plan.quick };
        if wanted("held") {
            held::run(&bench).await?;
        }
        if wanted("uncontended") {
            uncontended::run(&bench).await?;
        }
        if wanted("far") {
            uncontended::far(&bench).await?;
        }
        if wanted("connect") {
            connect::run(&bench).await?;
        }
        if wanted("death") {
            death::run(&bench).await?;
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
        if wanted("shared") {
            shared::run(&bench).await?;
        }
        if wanted("churn") {
            churn::run(&bench).await?;
        }
        if wanted("cluster") {
            clusters::run(&bench).await?;
        }
        if wanted("quorum") {
            quorum::run(&bench).await?;
        }
        // A quorum's waiters are a storm that can be asked for without the others' name, too.
        let is_waiters = |scene: &str| scene == "storm/waiters" && wanted("waiters");
        storm::run(&bench, |scene| wanted("storm") || wanted(scene) || is_waiters(scene)).await?;
        Outcome::Ok(())
    })?;
    // Last: the other libraries come from registries, which may be out of reach.
    if plan.wants("peers") {
        bench_support::peers(&plan, &["redis", "quorum"])?;
    }
    Ok(())
}
