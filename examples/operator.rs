//! Shows who holds a lock and who waits for it, and frees a grant by force. `docs/operations.md` tells when; `--help` tells every option.
//!
//! `cargo run -p examples --example operator -- redis://127.0.0.1:6379 mutex orders/42` shows the lock, and
//! `… mutex orders/42 GRANT "its machine hangs"` frees the grant of which that has shown the id.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use lock_core::{GrantId, Inspection, LockName, Locks, Mutex, ReentrantMutex, RwLock, Semaphore};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_redis::{QuorumConfig, QuorumLocks, RedisConfig, RedisLocks};
use lock_zk::{ZkConfig, ZkLocks};

/// The time until the holder's next renewal, by the default TTL. On ZooKeeper the holder reads then by whom and why it was freed, which
/// is there for as long as this client lives.
const NEXT_RENEWAL: Duration = Duration::from_secs(4);

/// The environment variable with the credentials for ZooKeeper. Everybody on this machine sees arguments.
const DIGEST: &str = "ZK_DIGEST";

/// Shows who holds a lock and who waits for it. With GRANT and REASON: frees this grant, tells its holder why, and lets the next waiter in.
#[derive(Parser)]
struct Args {
    /// The servers, as the application names them: redis://…, redis-sentinel://…, redis-cluster://…, zk://… or memcached://…
    ///
    /// User and password for Redis are in the URL; those for ZooKeeper in the environment, as ZK_DIGEST=user:password.
    url: String,
    /// The kind of the lock. That of a job or an election is a mutex.
    kind: Kind,
    /// The lock's name.
    name: String,
    /// The grant to free.
    #[arg(requires = "reason")]
    grant: Option<GrantId>,
    /// The reason that its holder is told.
    reason: Option<String>,
    /// Takes NAME for a key or path that is shared with other libraries (`LockName::from_key`).
    #[arg(long)]
    key: bool,
    /// The application's prefix.
    #[arg(long, default_value = "lock")]
    prefix: String,
    /// Another server of a quorum: once for each of them.
    #[arg(long = "quorum", value_name = "URL")]
    others: Vec<String>,
    /// The authority of the servers' certificates, a PEM file. Redis: that of the operating system if none is given.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Mutex,
    Reentrant,
    Rwlock,
    Semaphore,
}

async fn connect(args: &Args) -> Result<Locks, Box<dyn Error>> {
    let (url, prefix) = (&args.url, &args.prefix);
    let ca = args.ca.as_ref().map(std::fs::read_to_string).transpose()?;
    // The rest of the URL may have a password.
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    Ok(match scheme {
        "zk" | "zks" => {
            let mut config = ZkConfig::new(url).with_prefix(prefix);
            if let Ok(digest) = std::env::var(DIGEST) {
                let (user, password) = digest.split_once(':').ok_or("ZK_DIGEST is not user:password")?;
                config = config.with_digest(user, password);
            }
            if let Some(ca) = ca {
                config = config.with_tls(lock_zk::Tls::new(ca));
            }
            ZkLocks::connect_with(config).await?.into()
        }
        "memcached" => {
            // Whoever takes no lock need not wait for leases of before a restart, nor know the longest one.
            let config = MemcachedConfig::new(url).with_prefix(prefix).with_restart_policy(RestartPolicy::Off);
            MemcachedLocks::connect_with(config).await?.into()
        }
        _ if scheme == "unix" || scheme.starts_with("redis") || scheme.starts_with("valkey") => {
            let tls = ca.map(|ca| lock_redis::Tls::new().with_ca_pem(ca));
            if args.others.is_empty() {
                let config = RedisConfig::new(url).with_prefix(prefix);
                let config = tls.into_iter().fold(config, RedisConfig::with_tls);
                RedisLocks::connect_with(config).await?.into()
            } else {
                // Servers that have just started are looked at, too: no lock is taken.
                let config = QuorumConfig::new([url].into_iter().chain(&args.others)).with_young_servers(true);
                let config = tls.into_iter().fold(config.with_prefix(prefix), QuorumConfig::with_tls);
                QuorumLocks::connect_with(config).await?.into()
            }
        }
        _ => return Err(format!("{scheme:?} is none of redis, zk and memcached").into()),
    })
}

/// A lock of any kind.
enum Lock {
    Mutex(Mutex),
    Reentrant(ReentrantMutex),
    RwLock(RwLock),
    Semaphore(Semaphore),
}

impl Lock {
    fn of(locks: &Locks, args: &Args) -> Result<Self, Box<dyn Error>> {
        let name = if args.key { LockName::from_key(&*args.name)? } else { LockName::new(&*args.name)? };
        let lock = match args.kind {
            Kind::Mutex => Some(Self::Mutex(locks.mutex(name))),
            Kind::Reentrant => locks.reentrant(name).map(Self::Reentrant),
            Kind::Rwlock => locks.rwlock(name).map(Self::RwLock),
            // Any limit does: neither a look nor a release by force minds it.
            Kind::Semaphore => locks.semaphore(name, 1).map(Self::Semaphore),
        };
        lock.ok_or_else(|| format!("{} has no locks of this kind", locks.backend_name()).into())
    }

    async fn inspect(&self) -> Result<Inspection, lock_core::Error> {
        match self {
            Self::Mutex(lock) => lock.inspect().await,
            Self::Reentrant(lock) => lock.inspect().await,
            Self::RwLock(lock) => lock.inspect().await,
            Self::Semaphore(lock) => lock.inspect().await,
        }
    }

    async fn force_release(&self, grant: GrantId, reason: &str) -> Result<bool, lock_core::Error> {
        match self {
            Self::Mutex(lock) => lock.force_release(grant, reason).await,
            Self::Reentrant(lock) => lock.force_release(grant, reason).await,
            Self::RwLock(lock) => lock.force_release(grant, reason).await,
            Self::Semaphore(lock) => lock.force_release(grant, reason).await,
        }
    }
}

/// Does what is asked for; returns what there is to say.
async fn run(args: &Args) -> Result<String, Box<dyn Error>> {
    let locks = connect(args).await?;
    let lock = Lock::of(&locks, args)?;
    let (Some(grant), Some(reason)) = (args.grant, &args.reason) else {
        return Ok(serde_json::to_string_pretty(&lock.inspect().await?)?);
    };
    if !lock.force_release(grant, reason).await? {
        return Err("the lock is not held under this grant".into());
    }
    if args.url.starts_with("zk") {
        tokio::time::sleep(NEXT_RENEWAL).await;
    }
    locks.close().await?;
    Ok("freed".to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(&Args::parse()).await {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            let causes = std::iter::successors(Some(&*error), |&error| error.source());
            causes.for_each(|cause| eprintln!("{cause}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{LossReason, Permit};
    use lock_testkit::testing::installed;
    use lock_testkit_servers::memcached::MemcachedServer;
    use lock_testkit_servers::redis::{IndependentServers, RedisServer};
    use lock_testkit_servers::zookeeper::ZooKeeperServer;
    use serde_json::Value;

    use super::*;

    async fn operator(args: &[&str]) -> Result<String, String> {
        let args = Args::try_parse_from([&["operator"], args].concat()).map_err(|error| error.to_string())?;
        run(&args).await.map_err(|error| error.to_string())
    }

    async fn holders(args: &[&str]) -> Vec<Value> {
        let seen: Value = serde_json::from_str(&operator(args).await.unwrap()).unwrap();
        seen["holders"].as_array().unwrap().clone()
    }

    /// The permits of a stuck process are seen and freed by whoever knows neither its limit nor its other options.
    async fn sees_and_frees_a_permit(url: &str, locks: Locks) {
        let api = locks.semaphore("api", 7).unwrap();
        let (stuck, other): (Permit, Permit) = (api.acquire_many(2).await.unwrap(), api.acquire().await.unwrap());
        let lock = [url, "semaphore", "api", "--prefix", "billing"];
        let seen = holders(&lock).await;
        let permits: Vec<_> = seen.iter().map(|holder| holder["permits"].as_u64().unwrap()).collect();
        assert!(permits == [1, 2] || permits == [2, 1], "{url}: {seen:?}");
        let (lost, grant) = (stuck.lost(), stuck.grant_id().to_string());
        assert_eq!(operator(&[&lock[..], &[&grant, "it hangs"]].concat()).await.as_deref(), Ok("freed"), "{url}");
        assert!(
            matches!(lost.await, LossReason::ForceReleased { reason, .. } if reason == "it hangs"),
            "{url} does not tell why"
        );
        assert_eq!(api.available().await.unwrap(), 6, "{url}");
        assert!(other.is_held(), "{url}");
        let again = operator(&[&lock[..], &[&grant, "it hangs"]].concat()).await;
        assert!(again.is_err_and(|said| said.contains("not held")), "{url}");
    }

    #[tokio::test]
    async fn a_stuck_permit_is_seen_and_freed_on_redis() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let config = RedisConfig::new(server.url()).with_prefix("billing");
        sees_and_frees_a_permit(server.url(), RedisLocks::connect_with(config).await.unwrap().into()).await;
    }

    #[tokio::test]
    async fn a_stuck_permit_is_seen_and_freed_on_zookeeper() {
        let Some(server) = installed(ZooKeeperServer::start_own().await) else { return };
        let config = ZkConfig::new(server.url()).with_prefix("billing");
        sees_and_frees_a_permit(server.url(), ZkLocks::connect_with(config).await.unwrap().into()).await;
    }

    #[tokio::test]
    async fn a_stuck_permit_is_seen_and_freed_on_memcached_whatever_the_longest_lease() {
        let Some(server) = installed(MemcachedServer::start_own().await) else { return };
        let config = MemcachedConfig::new(server.url()).with_prefix("billing");
        // The clients of the prefix agree on another one than the default.
        let agreed = config.clone().with_longest_lease(Duration::from_secs(20));
        MemcachedLocks::connect_with(agreed).await.unwrap();
        let locks = MemcachedLocks::connect_with(config.with_restart_policy(RestartPolicy::Off)).await.unwrap();
        sees_and_frees_a_permit(server.url(), locks.into()).await;
    }

    #[tokio::test]
    async fn a_raw_key_is_seen_and_freed() {
        let Some(server) = installed(RedisServer::start_own().await) else { return };
        let locks = RedisLocks::connect(server.url()).await.unwrap();
        let guard = locks.mutex(LockName::from_key("jobs").unwrap()).lock().await.unwrap();
        assert_eq!(holders(&[server.url(), "mutex", "jobs"]).await, [] as [Value; 0], "that is another lock");
        let lock = [server.url(), "mutex", "jobs", "--key"];
        let grant = guard.grant_id().to_string();
        assert_eq!(holders(&lock).await[0]["grant"], *grant);
        assert_eq!(operator(&[&lock[..], &[&grant, "it hangs"]].concat()).await.as_deref(), Ok("freed"));
        assert!(matches!(guard.lost().await, LossReason::ForceReleased { .. }));
    }

    #[tokio::test]
    async fn a_holder_on_a_quorum_is_seen_and_freed() {
        let Some(servers) = installed(IndependentServers::start_own(3).await) else { return };
        let urls = servers.urls();
        let locks = QuorumLocks::connect_with(QuorumConfig::new(&urls).with_young_servers(true)).await.unwrap();
        let guard = locks.mutex("orders/42").lock().await.unwrap();
        let lock = [&*urls[0], "mutex", "orders/42", "--quorum", &*urls[1], "--quorum", &*urls[2]];
        let grant = guard.grant_id().to_string();
        assert_eq!(holders(&lock).await[0]["grant"], *grant);
        assert_eq!(operator(&[&lock[..], &[&grant, "it hangs"]].concat()).await.as_deref(), Ok("freed"));
        assert!(matches!(guard.lost().await, LossReason::ForceReleased { .. }));
        let mut semaphore = lock;
        semaphore[1] = "semaphore";
        assert!(operator(&semaphore).await.is_err_and(|said| said.contains("no locks of this kind")));
    }

    #[tokio::test]
    async fn a_grant_is_not_freed_without_a_reason() {
        let grant = "00112233445566778899aabbccddeeff";
        let said = operator(&["redis://127.0.0.1:1", "mutex", "orders/42", grant]).await.unwrap_err();
        assert!(said.contains("<REASON>"), "{said}");
    }
}
