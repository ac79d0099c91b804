//! Locks and releases free mutexes so many times in all, upon one thread: `instructions URL PAIRS [TASKS]`. Each task has a mutex of
//! its own; there is one if no number is given.
//!
//! `scripts/instructions` runs it under valgrind, with more and with fewer pairs. The difference is the client's own work.

#![forbid(unsafe_code)]

use std::time::Duration;

use lock_core::{ClientOptions, LeaseOptions, Locks, MemoryLocks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::RedisLocks;
use lock_zk::ZkLocks;
use tokio::task::JoinSet;

/// Short, so that a new memcached's quarantine is soon over; long enough for a valgrind that is fifty times slower.
const LEASE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(pairs)) = (arguments.next(), arguments.next()) else {
        return Err("usage: instructions URL PAIRS [TASKS]".into());
    };
    let pairs: u32 = pairs.parse()?;
    let tasks: u32 = arguments.next().map_or(Ok(1), |tasks| tasks.parse())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let locks = connect(&url).await?;
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let mutex = locks.mutex(format!("pair-{task}"));
            running.spawn(async move {
                for _ in 0..pairs / tasks {
                    mutex.lock().await?.release().await?;
                }
                Ok::<_, lock_core::Error>(())
            });
        }
        while let Some(outcome) = running.join_next().await {
            outcome??;
        }
        Ok(())
    })
}

async fn connect(url: &str) -> Result<Locks, Box<dyn std::error::Error>> {
    Ok(match url.split_once(':') {
        Some(("memory", _)) => MemoryLocks::new().into(),
        Some(("redis", _)) => RedisLocks::connect(url).await?.into(),
        Some(("zk", _)) => ZkLocks::connect(url).await?.into(),
        Some(("memcached", _)) => {
            let client = ClientOptions::default().with_lease(LeaseOptions::new(LEASE));
            MemcachedLocks::connect_with(MemcachedConfig::new(url).with_client(client).with_longest_lease(LEASE))
                .await?
                .into()
        }
        _ => return Err(format!("{url:?} is none of memory:, redis://…, zk://… and memcached://…").into()),
    })
}
