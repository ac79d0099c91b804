//! `cargo bench -p lock-memcached`: every figure beside its baseline, measured in turn in the same run on a server of its
//! own.
//!
//! `cargo bench -p lock-memcached -- uncontended` runs one part; `--quick` runs each for a fraction of the time. The
//! parts are [`PARTS`].

mod bare;
mod child;
mod connect;
mod crashes;
mod handover;
mod idle;
mod processes;
mod storm;
mod uncontended;

use std::time::Duration;

use bench_support::{Outcome, Plan};
use lock_core::{ClientOptions, LeaseOptions};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_testkit_servers::memcached::MemcachedServer;

/// The parts that can be asked for by name.
const PARTS: [&str; 9] =
    ["peers", "uncontended", "far", "connect", "handover", "processes", "idle", "crashes", "storm"];

/// The lease: short, so that a new server's quarantine and a dead holder's lock are over soon.
const LEASE: Duration = Duration::from_secs(1);

/// The server and the settings that every part needs.
struct Bench {
    server: MemcachedServer,
    plan: Plan,
}

impl Bench {
    async fn locks(&self) -> Outcome<MemcachedLocks> {
        locks(self.server.url(), RestartPolicy::Quarantine).await
    }

    async fn unguarded(&self) -> Outcome<MemcachedLocks> {
        locks(self.server.url(), RestartPolicy::Off).await
    }

    /// A number that the server counts.
    async fn figure(&self, name: &str) -> Outcome<u64> {
        let stats = self.server.client().stats("").await.map_err(|error| error.to_string())?;
        Ok(stats.get(name).ok_or("no such figure")?.parse()?)
    }
}

async fn fresh(url: &str, policy: RestartPolicy) -> Outcome<MemcachedLocks> {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(LEASE);
    let config = MemcachedConfig::new(url).with_prefix("bench").with_client(client).with_longest_lease(LEASE);
    Ok(MemcachedLocks::connect_with(config.with_restart_policy(policy)).await?)
}

async fn locks(url: &str, policy: RestartPolicy) -> Outcome<MemcachedLocks> {
    let locks = fresh(url, policy).await?;
    // A new server grants nothing until the leases of a former one would be over.
    locks.mutex("first").lock().await?.release().await?;
    Ok(locks)
}

fn main() -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(order) = child::is_child() {
        return runtime.block_on(processes::child(order));
    }
    let plan = Plan::of_args(&PARTS, Duration::from_secs(1))?;
    runtime.block_on(async {
        let bench = Bench { server: MemcachedServer::start_own().await?, plan: plan.clone() };
        if bench.plan.wants("uncontended") {
            uncontended::run(&bench).await?;
        }
        if bench.plan.wants("far") {
            uncontended::far(&bench).await?;
        }
        if bench.plan.wants("connect") {
            connect::run(&bench).await?;
        }
        if bench.plan.wants("handover") {
            handover::run(&bench).await?;
        }
        if bench.plan.wants("processes") {
            processes::run(&bench).await?;
        }
        if bench.plan.wants("idle") {
            idle::run(&bench).await?;
        }
        if bench.plan.wants("crashes") {
            crashes::run(&bench).await?;
        }
        if bench.plan.wants("storm") {
            storm::run(&bench).await?;
        }
        Outcome::Ok(())
    })?;
    // Last: the other libraries come from registries, which may be out of reach.
    if plan.wants("peers") {
        bench_support::peers(&plan, &["memcached"])?;
    }
    Ok(())
}
