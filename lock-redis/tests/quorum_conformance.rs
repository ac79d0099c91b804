//! The conformance suite on a quorum of five real servers, which it starts itself.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, GrantId, LockName, Locks};
use lock_redis::{QuorumConfig, QuorumLocks};
use lock_testkit::proxy::Protocol;
use lock_testkit::servers::redis::RedisServer;
use lock_testkit::servers::resp::{Resp, Value};
use lock_testkit::{Admin, Broken, Foreign, GroundTruth, Harness, Linked, Missing};

fn main() -> ExitCode {
    lock_testkit::main::<Quorum>()
}

const SERVERS: usize = 5;
const MAJORITY: usize = 3;

struct Quorum {
    urls: Vec<String>,
    /// None in a child process, which owns no servers.
    _servers: Vec<RedisServer>,
    /// What the foreign client has put into which key.
    foreign: Mutex<HashMap<String, String>>,
}

impl Quorum {
    fn at(urls: Vec<String>, servers: Vec<RedisServer>) -> Self {
        Self { urls, _servers: servers, foreign: Mutex::default() }
    }

    /// One command on every server.
    async fn command(&self, parts: &[&str]) -> Result<Vec<Value>, Broken> {
        let mut replies = Vec::new();
        for url in &self.urls {
            replies.push(Resp::from_url(url)?.command(parts).await?);
        }
        Ok(replies)
    }
}

#[async_trait]
impl Harness for Quorum {
    fn name(&self) -> &'static str {
        "redis-quorum"
    }

    async fn start() -> Result<Self, Missing> {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(RedisServer::start_own().await?);
        }
        Ok(Self::at(servers.iter().map(|server| server.url().to_owned()).collect(), servers))
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        Ok(Self::at(endpoint.split(' ').map(str::to_owned).collect(), Vec::new()))
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.urls.join(" "))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect(&self.urls, namespace).await
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

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
    }
}

async fn connect(urls: &[String], namespace: &str) -> Result<Locks, Error> {
    // The servers have only just been started, and none of them restarts.
    let config = QuorumConfig::new(urls).with_prefix(namespace).counting_young_servers();
    Ok(QuorumLocks::connect_with(config).await?.into())
}

#[async_trait]
impl Linked for Quorum {
    fn protocol(&self) -> Protocol {
        Protocol::Resp
    }

    fn servers(&self) -> Vec<String> {
        let address = |url: &String| url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
        self.urls.iter().map(address).collect()
    }

    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        let urls: Vec<_> = addresses.iter().map(|address| format!("redis://{address}/")).collect();
        connect(&urls, namespace).await
    }
}

#[async_trait]
impl GroundTruth for Quorum {
    /// Every key but the reasons of forced releases (`:x`), which end with the lease that they ended.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, Broken> {
        let replies = self.command(&["KEYS", &format!("{namespace}:*")]).await?;
        let keys = replies.into_iter().flat_map(Value::into_parts).filter_map(|key| key.as_text());
        Ok(keys.filter(|key| !key.ends_with(":x")).collect())
    }
}

#[async_trait]
impl Admin for Quorum {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), Broken> {
        self.command(&["DEL", &key(namespace, name)]).await.map(drop)
    }

    async fn put_garbage(&self, namespace: &str, name: &LockName) -> Result<bool, Broken> {
        self.command(&["RPUSH", &key(namespace, name), "garbage"]).await.map(|_| true)
    }
}

/// The documented mapping, for names without `%` and braces.
fn key(namespace: &str, name: &LockName) -> String {
    format!("{namespace}:mutex:{{{name}}}")
}

/// As node-redlock and redsync do it: the same key and value on a majority, given back where it was no majority.
#[async_trait]
impl Foreign for Quorum {
    async fn try_hold(&self, key: &str, ttl: Duration) -> Result<bool, Broken> {
        let token = GrantId::random()?.to_string();
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), token.clone());
        let replies = self.command(&["SET", key, &token, "NX", "PX", &ttl.as_millis().to_string()]).await?;
        let taken = replies.iter().filter(|reply| reply.is_ok()).count() >= MAJORITY;
        if !taken {
            self.release(key).await?;
        }
        Ok(taken)
    }

    async fn release(&self, key: &str) -> Result<bool, Broken> {
        const COMPARE_AND_DELETE: &str =
            "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";
        let token = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default();
        let replies = self.command(&["EVAL", COMPARE_AND_DELETE, "1", key, &token]).await?;
        Ok(replies.iter().filter(|reply| reply.as_int() == Some(1)).count() >= MAJORITY)
    }
}
