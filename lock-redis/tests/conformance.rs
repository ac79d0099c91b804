//! The conformance suite on a real `redis-server`, which it starts itself.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, GrantId, LockName, Locks};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::servers::resp::{Resp, Value};
use lock_testkit::{Admin, Broken, Foreign, GroundTruth, Harness, Missing};

fn main() -> ExitCode {
    lock_testkit::main::<Redis>()
}

struct Redis {
    url: String,
    /// `None` in a child process, which owns no server.
    _server: Option<RedisServer>,
    /// What the foreign client has put into which key.
    foreign: Mutex<HashMap<String, String>>,
}

impl Redis {
    fn at(url: String, server: Option<RedisServer>) -> Self {
        Self { url, _server: server, foreign: Mutex::default() }
    }

    async fn command(&self, parts: &[&str]) -> Result<Value, Broken> {
        Resp::from_url(&self.url)?.command(parts).await
    }
}

#[async_trait]
impl Harness for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    async fn start() -> Result<Self, Missing> {
        let server = RedisServer::start().await?;
        Ok(Self::at(server.url().to_owned(), Some(server)))
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        Ok(Self::at(endpoint.to_owned(), None))
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.url.clone())
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        Ok(RedisLocks::connect_with(RedisConfig::new(&self.url).with_prefix(namespace)).await?.into())
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }
}

#[async_trait]
impl GroundTruth for Redis {
    /// Every key, but for the last tokens (`:f`), which are kept for two hours, and the reasons of forced releases
    /// (`:x`), which end with the lease that they ended. A client's one channel is its own as long as it lives; that it
    /// ends with the client is checked in `trouble/`.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, Broken> {
        let keys = self.command(&["KEYS", &format!("{namespace}:*")]).await?.into_parts();
        let left = keys.iter().filter_map(Value::as_text).filter(|key| !key.ends_with(":f") && !key.ends_with(":x"));
        Ok(left.collect())
    }
}

#[async_trait]
impl Admin for Redis {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), Broken> {
        let keys = keys(namespace, name);
        let del: Vec<_> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        self.command(&del).await.map(drop)
    }

    async fn put_garbage(&self, namespace: &str, name: &LockName) -> Result<bool, Broken> {
        for key in keys(namespace, name) {
            self.command(&["RPUSH", &key, "garbage"]).await?;
        }
        Ok(true)
    }
}

/// The documented mapping for every kind, for names without `%` and braces.
fn keys(namespace: &str, name: &LockName) -> [String; 4] {
    ["mutex", "reentrant", "rwlock", "semaphore"].map(|kind| format!("{namespace}:{kind}:{{{name}}}"))
}

/// As redis-py, node-redlock, redsync and redislock do it.
#[async_trait]
impl Foreign for Redis {
    async fn try_hold(&self, key: &str, ttl: Duration) -> Result<bool, Broken> {
        let token = GrantId::random()?.to_string();
        let taken = self.command(&["SET", key, &token, "NX", "PX", &ttl.as_millis().to_string()]).await?.is_ok();
        if taken {
            self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), token);
        }
        Ok(taken)
    }

    async fn release(&self, key: &str) -> Result<bool, Broken> {
        const COMPARE_AND_DELETE: &str =
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
        let token = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default();
        Ok(self.command(&["EVAL", COMPARE_AND_DELETE, "1", key, &token]).await?.as_int() == Some(1))
    }
}
