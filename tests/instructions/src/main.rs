//! Locks and releases a free mutex so many times, one after the other, upon one thread: `instructions URL PAIRS`.
//!
//! `scripts/instructions` runs it under valgrind, with more and with fewer pairs. The difference is the client's own work.

#![forbid(unsafe_code)]

use std::time::Duration;

use lock_core::{ClientOptions, LeaseOptions, Locks, MemoryLocks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::RedisLocks;
use lock_zk::ZkLocks;

/// Short, so that a new memcached's quarantine is soon over; long enough for a valgrind that is fifty times slower.
const LEASE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(pairs)) = (arguments.next(), arguments.next()) else {
        return Err("usage: instructions URL PAIRS".into());
    };
    let pairs: u32 = pairs.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mutex = connect(&url).await?.mutex("pair");
        for _ in 0..pairs {
            mutex.lock().await?.release().await?;
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
