//! An application that picks its backend at run time, from a URL, and does not care which one it got.
//!
//! `cargo run --example choose_backend -- memory:`, `-- redis://127.0.0.1:6379`,
//! `-- zk://127.0.0.1:2181` or `-- memcached://127.0.0.1:11211`

use std::process::ExitCode;
use std::time::Duration;

use lock_core::{ClientOptions, Error, Guarantee, LeaseOptions, Locks, MemoryLocks, Mutex};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::RedisLocks;
use lock_zk::ZkLocks;

const LEASE: Duration = Duration::from_secs(5);

/// An application's state: one `Locks`, whatever is behind it.
struct App {
    locks: Locks,
}

impl App {
    async fn start(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let locks: Locks = match url.split_once(':') {
            Some(("memory", _)) => MemoryLocks::new().into(),
            Some(("redis", _)) => RedisLocks::connect(url).await?.into(),
            Some(("zk", _)) => ZkLocks::connect(url).await?.into(),
            Some(("memcached", _)) => MemcachedLocks::connect_with(on_memcached(url)).await?.into(),
            _ => return Err(format!("{url:?} is none of memory:, redis://…, zk://… and memcached://…").into()),
        };
        // What the application cannot do without is said once, at the start, rather than found out later.
        locks.require(&[Guarantee::Fencing])?;
        Ok(Self { locks })
    }

    async fn clean_up(&self) -> Result<(), Error> {
        let uploads = self.locks.mutex("uploads").with_ttl(LEASE);
        if !one_at_a_time(&uploads).await? {
            println!("somebody else is at it");
        }
        match self.locks.semaphore("mail-server", 3) {
            Some(_) => println!("this backend has semaphores too"),
            None => println!("this backend has no semaphores (yet)"),
        }
        Ok(())
    }
}

/// After a restart memcached grants nothing until the longest lease is over: so it is to be as short as it may.
fn on_memcached(url: &str) -> MemcachedConfig {
    let client = ClientOptions::default().with_lease(LeaseOptions::new(LEASE));
    MemcachedConfig::new(url).with_client(client).with_longest_lease(LEASE)
}

/// A library takes the handle that it needs; it never learns which backend made it.
async fn one_at_a_time(uploads: &Mutex) -> Result<bool, Error> {
    let Some(guard) = uploads.try_lock_for(Duration::from_secs(15)).await? else { return Ok(false) };
    let removed = guard.while_held(async { 42 }).await?;
    let token = guard.fencing_token().map_or("none".to_owned(), |token| token.to_string());
    println!("removed {removed} files under {:?}, fencing token {token}", uploads.name().as_str());
    guard.release().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let outcome = match App::start(&url).await {
        Ok(app) => {
            println!("locks on {}", app.locks.backend_name());
            app.clean_up().await.map_err(Into::into)
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
