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
}

/// The parts that can be asked for by name.
const PARTS: [&str; 14] = [
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

/// The rounds with `--quick`.
const QUICK: u32 = 2;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

impl Bench {
    /// Whether the figures are only to show that it works.
    fn is_quick(&self) -> bool {
        self.rounds <= QUICK
    }

    async fn locks(&self) -> Outcome<RedisLocks> {
        Ok(RedisLocks::connect_with(RedisConfig::new(&self.url).with_prefix("bench")).await?)
    }
}

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(url) = child::is_child() {
        return runtime.block_on(child::run(url));
    }
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = args.iter().any(|arg| arg == "--quick");
    let scene = |arg: &str| arg.strip_prefix("storm/").is_some_and(|scene| storm::SCENES.contains(&scene));
    if let Some(unknown) = args.iter().find(|arg| *arg != "--quick" && !PARTS.contains(&&***arg) && !scene(arg)) {
        return Err(format!("there is no part {unknown:?}, but {}", PARTS.join(", ")).into());
    }
    let wanted = |part: &str| args.iter().all(|arg| arg.starts_with("--")) || args.iter().any(|arg| arg == part);
    runtime.block_on(async {
        let server = RedisServer::start().await?;
        let (round, rounds) = if quick { (Duration::from_millis(200), QUICK) } else { (Duration::from_secs(1), 5) };
        let bench = Bench { url: server.url().to_owned(), round, rounds };
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
        Ok(())
    })
}
