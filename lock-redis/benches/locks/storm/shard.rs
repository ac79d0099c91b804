//! A cluster of which one shard is dead while its locks are waited for.

use std::time::{Duration, Instant};

use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit_servers::redis::ClusterDeployment;
use tokio::time::sleep;

use super::table::{Bar, Table};
use super::truth::{Truth, whole};
use crate::{Bench, Outcome};

/// The time in which a client may look for the shard more often.
const AT_FIRST: Duration = Duration::from_secs(2);
const WAITERS: usize = 5;

pub(super) async fn run(bench: &Bench) -> Outcome {
    let table =
        Table::begin("a cluster of six nodes, one shard dead, five waiters of one client for its lock", "all up");
    let time = super::time(bench);
    let cluster = ClusterDeployment::start_own().await?;
    let slot = whole(cluster.slot_of("bench:mutex:{shard}").await)?;
    let dead = [whole(cluster.master_of(slot).await)?, whole(cluster.replica_of(slot).await)?];
    let alive: Vec<_> =
        cluster.nodes().iter().filter(|node| dead.iter().all(|dead| dead.address() != node.address())).collect();
    let truths = alive.iter().map(|node| Truth::of(node)).collect::<Outcome<Vec<_>>>()?;
    let locks = RedisLocks::connect_with(RedisConfig::new(cluster.url()).with_prefix("bench")).await?;
    let guard = locks.mutex("shard").lock().await?;
    let waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mutex = locks.mutex("shard");
            tokio::spawn(async move {
                loop {
                    if let Ok(guard) = mutex.lock().await {
                        std::future::pending::<()>().await;
                        drop(guard);
                    }
                }
            })
        })
        .collect();
    sleep(AT_FIRST).await;
    let before = rates(&truths, time).await?;
    for node in dead {
        whole(node.kill())?;
    }
    sleep(AT_FIRST).await;
    let after = rates(&truths, time).await?;
    table.row("maps asked for per second and node", after.0, Some(before.0), Bar::AtMost(1.0));
    table.row("new connections per second and node that answers", after.1, Some(before.1), Bar::AtMost(0.0));
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop(guard);
    Ok(())
}

/// The most maps and new connections per second that any of these nodes sees.
async fn rates(nodes: &[Truth], time: Duration) -> Outcome<(f64, f64)> {
    let (mut before, start) = (Vec::new(), Instant::now());
    for node in nodes {
        before.push((node.calls("cluster|nodes").await?, node.connections().await?));
    }
    sleep(time).await;
    let (mut maps, mut connections) = (0.0, 0.0);
    for (node, before) in nodes.iter().zip(before) {
        let seconds = start.elapsed().as_secs_f64();
        maps = f64::max(maps, (node.calls("cluster|nodes").await? - before.0) / seconds);
        connections = f64::max(connections, (node.connections().await? - before.1) / seconds);
    }
    Ok((maps, connections))
}
