//! Our own member; member.py, member.js, java/Member.java and redsync/main.go do the same.

use std::path::Path;
use std::time::Duration;

use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_redis::{
    ClientOptions, Error, Lease, LeaseOptions, LockName, Locks, Mutex, MutexGuard, Permit, ReadGuard, RedisConfig,
    RedisLocks, RwLock, Semaphore,
};
use lock_testkit::HarnessError;
use lock_zk::{Dialect, WriteGuard, ZkConfig, ZkLocks};
use rustix::process::{Signal, getpid, kill_process};
use tokio::time::sleep;

use crate::plan::{Instant, Plan};
use crate::record::Event;
use crate::scene::Scene;

/// Takes turns until the plan's end.
pub(crate) async fn run(plan: &Plan) -> Result<(), HarnessError> {
    let locks = connect(plan).await?;
    let lock = Lock::of(plan, &locks)?;
    say(&Event::Ready {
        library: format!("lock-{}", locks.backend_name()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })?;
    sleep(plan.from.since(Instant::now())).await;
    let mut special = Some(&plan.special);
    for turn in 0_u64.. {
        if Instant::now() >= plan.until {
            break;
        }
        say(&Event::Asks { at: Instant::now() })?;
        let held = lock.take(turn).await?;
        let shared = held.is_shared();
        say(&Event::Holds { at: Instant::now(), shared })?;
        let mut work_ms = plan.work_ms;
        if let Some(special) = special.take_if(|special| Instant::now() >= special.at) {
            if special.dies {
                kill_process(getpid(), Signal::KILL)?;
            }
            work_ms = special.work_ms;
        }
        held.lease().while_held(count(&plan.counter, Duration::from_millis(work_ms), shared)).await??;
        // Before the release: it stops to believe in the lock when it asks for that, not when it has the answer.
        say(&Event::Releases { at: Instant::now() })?;
        held.release().await?;
        sleep(Duration::from_millis(plan.pause_ms)).await;
    }
    Ok(locks.close().await?)
}

async fn connect(plan: &Plan) -> Result<Locks, Error> {
    let (url, ttl) = (plan.url.as_str(), Duration::from_millis(plan.ttl_ms));
    let dialect = match plan.scene {
        Scene::Redis | Scene::RedisPy | Scene::Redsync => return Ok(RedisLocks::connect(url).await?.into()),
        Scene::Redisson => {
            let config = RedisConfig::new(url).with_dialect_at(plan.key.as_str(), lock_redis::Dialect::Redisson);
            return Ok(RedisLocks::connect_with(config).await?.into());
        }
        Scene::Memcached => {
            let mut client = ClientOptions::default();
            client.lease = LeaseOptions::new(ttl);
            let config = MemcachedConfig::new(url).with_client(client).with_longest_lease(ttl);
            return Ok(MemcachedLocks::connect_with(config).await?.into());
        }
        Scene::KazooMutex | Scene::KazooRwlock => Dialect::Kazoo,
        Scene::CuratorMutex | Scene::CuratorRwlock | Scene::CuratorSemaphore => Dialect::Curator,
    };
    let config = ZkConfig::new(url).with_session_timeout(ttl).with_tick_time(Duration::from_millis(200));
    Ok(ZkLocks::connect_with(config.with_dialect_at(&plan.key, dialect)).await?.into())
}

/// The lock that is taken in turns.
enum Lock {
    Mutex(Mutex),
    /// Read and written by turns.
    RwLock(RwLock),
    Semaphore(Semaphore),
}

/// One turn's grant.
enum Held {
    Mutex(MutexGuard),
    Read(ReadGuard),
    Write(WriteGuard),
    Permit(Permit),
}

impl Lock {
    fn of(plan: &Plan, locks: &Locks) -> Result<Self, HarnessError> {
        let (name, ttl) = (LockName::from_key(plan.key.as_str())?, Duration::from_millis(plan.ttl_ms));
        let none = || HarnessError::new("our backend has no such kind");
        Ok(match plan.scene {
            Scene::Redis
            | Scene::RedisPy
            | Scene::Redsync
            | Scene::Redisson
            | Scene::Memcached
            | Scene::CuratorMutex
            | Scene::KazooMutex => Self::Mutex(locks.mutex(name).with_ttl(ttl)),
            Scene::CuratorRwlock | Scene::KazooRwlock => {
                Self::RwLock(locks.rwlock(name).ok_or_else(none)?.with_ttl(ttl))
            }
            Scene::CuratorSemaphore => {
                Self::Semaphore(locks.semaphore(name, plan.limit).ok_or_else(none)?.with_ttl(ttl))
            }
        })
    }

    async fn take(&self, turn: u64) -> Result<Held, Error> {
        Ok(match self {
            Self::Mutex(lock) => Held::Mutex(lock.lock().await?),
            Self::RwLock(lock) if turn.is_multiple_of(2) => Held::Read(lock.read().await?),
            Self::RwLock(lock) => Held::Write(lock.write().await?),
            Self::Semaphore(lock) => Held::Permit(lock.acquire().await?),
        })
    }
}

impl Held {
    fn is_shared(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    fn lease(&self) -> &Lease {
        match self {
            Self::Mutex(guard) => guard,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
            Self::Permit(guard) => guard,
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Mutex(guard) => guard.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
    }
}

/// Two steps with a pause between them: only the lock keeps others from counting the same number. Readers only look.
async fn count(counter: &Path, work: Duration, shared: bool) -> Result<(), HarnessError> {
    let value: u64 = std::fs::read_to_string(counter)?.parse().unwrap_or(0);
    sleep(work).await;
    if !shared {
        std::fs::write(counter, (value + 1).to_string())?;
    }
    Ok(())
}

fn say(event: &Event) -> Result<(), HarnessError> {
    println!("{}", serde_json::to_string(event)?);
    Ok(())
}
