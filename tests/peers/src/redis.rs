//! One Redis server: the bare client crate, ours, rslock, redsync and Redisson.

use std::time::Duration;

use bench_support::Outcome;
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit_servers::redis::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, cmd};
use rslock::LockManager;

use crate::Field;
use crate::contender::{Contender, Local, Scene, Turn};
use crate::foreign::Foreign;
use crate::{ours, processes};

const TTL: Duration = Duration::from_secs(10);
/// The time for which the just-in-time compiler of a JVM is given something to do.
const JVM: Duration = Duration::from_secs(10);

pub(crate) const SERVER: &str = "redis";

pub(crate) async fn field() -> Outcome<Field> {
    let server = RedisServer::start_own().await?;
    let url = server.url().to_owned();
    let mut operator = Client::open(&*url)?.get_multiplexed_async_connection().await?;
    let _: i64 = cmd("RPUSH").arg("floor:tokens").arg("token").query_async(&mut operator).await?;
    let mut contenders = processes::also(SERVER, std::slice::from_ref(&url), local(&url).await?);
    contenders.extend(Foreign::start("PEER_REDSYNC", &[&url], "redsync 4.18.1", false, TTL / 10).await?);
    for (kind, has_tokens) in [("lock", false), ("fair", false), ("fenced", true), ("write", false), ("permit", false)]
    {
        let name = format!("Redisson 4.7.0 {kind}");
        contenders.extend(Foreign::start("PEER_REDISSON", &[&url, kind], &name, has_tokens, JVM).await?);
    }
    Ok(Field { server: Box::new(server), title: "On one Redis server", contenders })
}

/// The contenders of this program.
pub(crate) async fn local(url: &str) -> Outcome<Vec<Box<dyn Contender>>> {
    let mut contenders = vec![floor(url).await?];
    let locks = RedisLocks::connect_with(RedisConfig::new(url).with_prefix("peers")).await?;
    contenders.extend(ours::kinds("lock-redis", &locks.into()));
    contenders.push(rslock(vec![url.to_owned()]));
    Ok(contenders)
}

/// The least that any lock on Redis does, over one connection; and a list of one token for hand-overs, a connection for each task.
async fn floor(url: &str) -> Outcome<Box<dyn Contender>> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(url)?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    // Its digest is made here, and not with each release.
    let release = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    );
    Ok(Local::boxed("floor: `SET NX PX` + compare-and-delete; `BLPOP` list", false, move |scene, key| match scene {
        Scene::Free => Floor::Pair { connection: connection.clone(), key, release: release.clone() },
        Scene::HandOver | Scene::Processes => Floor::List { client: Box::new(client.clone()), connection: None },
    }))
}

enum Floor {
    Pair { connection: MultiplexedConnection, key: String, release: Script },
    List { client: Box<Client>, connection: Option<MultiplexedConnection> },
}

impl Turn for Floor {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        match self {
            Self::Pair { connection, key, release } => {
                let mut set = cmd("SET");
                set.arg(&*key).arg("0123456789abcdef").arg("NX").arg("PX").arg(10_000);
                let _: Option<String> = set.query_async(connection).await?;
                holds();
                let _: i64 = release.key(&*key).arg("0123456789abcdef").invoke_async(connection).await?;
            }
            Self::List { client, connection } => {
                let connection = match connection {
                    Some(connection) => connection,
                    None => {
                        let config = AsyncConnectionConfig::new().set_response_timeout(None);
                        connection.insert(client.get_multiplexed_async_connection_with_config(&config).await?)
                    }
                };
                let _: (String, String) = cmd("BLPOP").arg("floor:tokens").arg(0).query_async(connection).await?;
                holds();
                let _: i64 = cmd("RPUSH").arg("floor:tokens").arg("token").query_async(connection).await?;
            }
        }
        Ok(())
    }
}

pub(crate) fn rslock(urls: Vec<String>) -> Box<dyn Contender> {
    let manager = LockManager::new(urls);
    Local::boxed("rslock 0.10.0", false, move |_, name| Rslock { manager: manager.clone(), name })
}

struct Rslock {
    manager: LockManager,
    name: String,
}

impl Turn for Rslock {
    async fn go(&mut self, holds: impl Fn() + Send + Sync) -> Outcome {
        let lock = self.manager.acquire_no_guard(self.name.as_bytes(), TTL).await?;
        holds();
        self.manager.unlock(&lock).await;
        Ok(())
    }
}
