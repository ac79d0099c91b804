//! Scenes: the members, and the server that they share.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use lock_testkit::Missing;
use lock_testkit_servers::memcached::MemcachedServer;
use lock_testkit_servers::redis::RedisServer;
use lock_testkit_servers::zookeeper::ZooKeeperServer;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// The libraries that share a key or a path, and the kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scene {
    Redis,
    /// redis-py's alone, which looks every 5 ms.
    RedisPy,
    Redsync,
    Redisson,
    Memcached,
    CuratorMutex,
    CuratorRwlock,
    CuratorSemaphore,
    KazooMutex,
    KazooRwlock,
}

/// The program that starts a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// This program.
    Ours,
    /// An interpreter and its script.
    Script(&'static str, &'static str),
    /// A program that scripts/interop has compiled.
    Binary(&'static str),
    /// A class that scripts/interop has compiled.
    Java(&'static str),
}

/// The members by name.
pub(crate) type Cast = Vec<(&'static str, Program)>;

/// A server of the run's own.
pub(crate) enum Server {
    Redis(RedisServer),
    Memcached(MemcachedServer),
    ZooKeeper(ZooKeeperServer),
}

const REDIS: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("redlock", Program::Script("node", "redlock.js")),
    ("redis-py-1", Program::Script("python3", "redis_py.py")),
    ("ours-2", Program::Ours),
    ("redis-py-2", Program::Script("python3", "redis_py.py")),
    ("redis-semaphore", Program::Script("node", "redis_semaphore.js")),
];

const REDIS_PY: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("redis-py-1", Program::Script("python3", "redis_py.py")),
    ("ours-2", Program::Ours),
    ("redis-py-2", Program::Script("python3", "redis_py.py")),
    ("ours-3", Program::Ours),
    ("redis-py-3", Program::Script("python3", "redis_py.py")),
];

const REDSYNC: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("redsync-1", Program::Binary("redsync")),
    ("ours-2", Program::Ours),
    ("redsync-2", Program::Binary("redsync")),
    ("ours-3", Program::Ours),
    ("redsync-3", Program::Binary("redsync")),
];

const REDISSON: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("redisson-1", Program::Java("RedissonMember")),
    ("ours-2", Program::Ours),
    ("redisson-2", Program::Java("RedissonMember")),
    ("ours-3", Program::Ours),
    ("redisson-3", Program::Java("RedissonMember")),
];

const MEMCACHED: [(&str, Program); 4] = [
    ("ours-1", Program::Ours),
    ("pymemcache-1", Program::Script("python3", "pymemcache_lock.py")),
    ("ours-2", Program::Ours),
    ("pymemcache-2", Program::Script("python3", "pymemcache_lock.py")),
];

const CURATOR: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("curator-1", Program::Java("CuratorMember")),
    ("ours-2", Program::Ours),
    ("curator-2", Program::Java("CuratorMember")),
    ("ours-3", Program::Ours),
    ("curator-3", Program::Java("CuratorMember")),
];

const KAZOO: [(&str, Program); 6] = [
    ("ours-1", Program::Ours),
    ("kazoo-1", Program::Script("python3", "kazoo_member.py")),
    ("ours-2", Program::Ours),
    ("kazoo-2", Program::Script("python3", "kazoo_member.py")),
    ("ours-3", Program::Ours),
    ("kazoo-3", Program::Script("python3", "kazoo_member.py")),
];

impl Scene {
    /// Returns the members. Each has its special turn, one after the other, in this order.
    pub(crate) fn members(self) -> &'static [(&'static str, Program)] {
        match self {
            Self::Redis => &REDIS,
            Self::RedisPy => &REDIS_PY,
            Self::Redsync => &REDSYNC,
            Self::Redisson => &REDISSON,
            Self::Memcached => &MEMCACHED,
            Self::CuratorMutex | Self::CuratorRwlock | Self::CuratorSemaphore => &CURATOR,
            Self::KazooMutex | Self::KazooRwlock => &KAZOO,
        }
    }

    /// The number of holders at once, at most.
    pub(crate) fn limit(self) -> u32 {
        if self == Self::CuratorSemaphore { 2 } else { 1 }
    }

    /// The key that they share, and the one to which `--break` sends a member.
    pub(crate) fn keys(self) -> (&'static str, &'static str) {
        match self {
            // redis-semaphore begins every key like this.
            Self::Redis | Self::RedisPy | Self::Redsync | Self::Redisson | Self::Memcached => {
                ("mutex:shared", "mutex:somewhere-else")
            }
            _ => ("/shared", "/somewhere-else"),
        }
    }

    /// The TTL, and the work of special turns, which is longer.
    pub(crate) fn times(self) -> (Duration, Duration) {
        let ms = Duration::from_millis;
        match self {
            Self::Redis | Self::RedisPy | Self::Redsync | Self::Redisson => (ms(2500), ms(2800)),
            Self::Memcached => (ms(3000), ms(3300)),
            _ => (ms(3000), ms(3200)),
        }
    }

    /// Whether the other libraries ask now and then, and stand in no queue with ours.
    pub(crate) fn others_poll(self) -> bool {
        matches!(self, Self::Redis | Self::RedisPy | Self::Redsync | Self::Redisson | Self::Memcached)
    }

    /// The time beyond its TTL for which a dead holder's lock may live.
    pub(crate) fn kept(self) -> Duration {
        // The margin of lock-memcached for a clock of whole seconds that errs early, or stood still, and 1 s for the rounding.
        if self == Self::Memcached { Duration::from_secs(6) } else { Duration::ZERO }
    }

    /// Until every interpreter runs and is connected, and locks are granted.
    pub(crate) fn preparation(self) -> Duration {
        // A new memcached grants nothing until the leases of a former one would be over.
        Duration::from_secs(if self == Self::Memcached { 8 } else { 6 })
    }

    pub(crate) async fn server(self) -> Result<Server, Missing> {
        Ok(match self {
            Self::Redis | Self::RedisPy | Self::Redsync | Self::Redisson => {
                Server::Redis(RedisServer::start_own().await?)
            }
            Self::Memcached => Server::Memcached(MemcachedServer::start_own().await?),
            _ => Server::ZooKeeper(ZooKeeperServer::start_own().await?),
        })
    }
}

impl Server {
    pub(crate) fn url(&self) -> &str {
        match self {
            Self::Redis(server) => server.url(),
            Self::Memcached(server) => server.url(),
            Self::ZooKeeper(server) => server.url(),
        }
    }
}

impl Program {
    pub(crate) fn command(self) -> std::io::Result<Command> {
        Ok(match self {
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe()?);
                // The scene is in the plan.
                command.args(["redis", "--member"]);
                command
            }
            Self::Script(interpreter, script) => {
                let mut command = Command::new(interpreter);
                command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
                command
            }
            Self::Binary(program) => Command::new(program),
            Self::Java(class) => {
                let mut command = Command::new("java");
                command.args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", class]);
                command
            }
        })
    }
}
