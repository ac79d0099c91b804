//! The harness of the conformance suite for Redis, however the servers are arranged.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, LockName, Locks};
use lock_redis::network::{Network, Stream};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::proxy::Protocol;
use lock_testkit::{
    Admin, DisposableServer, DisposableServers, Foreign, GroundTruth, Harness, HarnessError, Linked, Missing,
    ServerFault,
};
use lock_testkit_servers::Deployment;
use lock_testkit_servers::resp::{Resp, Value};
use tokio::net::TcpStream;

use crate::foreign::ForeignClient;

/// An arrangement of servers, and what can be done to such servers if a case has them for itself.
#[async_trait]
pub(crate) trait Arrangement: Deployment {
    const FAULTS: &'static [ServerFault] = &[];

    /// A client of the servers at this URL, or at these URLs with blanks between them.
    async fn connect(url: &str, namespace: &str) -> Result<Locks, Error> {
        Ok(RedisLocks::connect_with(RedisConfig::new(url).with_prefix(namespace)).await?.into())
    }

    async fn disposable_server(fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Err(Missing::new(format!("no servers for a {fault:?}")))
    }
}

pub(crate) struct Redis<D> {
    url: String,
    /// The addresses that clients are told by sentinels or a cluster, if they are.
    told: Vec<String>,
    /// `None` in a child process, which owns no server.
    _servers: Option<D>,
    foreign: ForeignClient,
}

/// The parts of the URL of servers that belong together.
struct UrlParts<'a> {
    /// `user:password@`, or nothing.
    credentials: &'a str,
    /// `host:port`, with commas between them.
    hosts: &'a str,
    /// The name of the master behind sentinels.
    name: &'a str,
}

impl<D: Deployment> Redis<D> {
    fn at(url: String, servers: Option<D>) -> Self {
        Self { url, told: Vec::new(), _servers: servers, foreign: ForeignClient::default() }
    }

    /// The addresses that clients are told: of all nodes of a cluster, or of the master behind sentinels.
    async fn told(&self) -> Result<Vec<String>, HarnessError> {
        let UrlParts { hosts, name, .. } = self.parts();
        if self.url.starts_with("redis-cluster:") {
            return Ok(hosts.split(',').map(str::to_owned).collect());
        }
        match hosts.split(',').next() {
            Some(sentinel) if self.url.starts_with("redis-sentinel:") => {
                Ok(master_told_by(&Resp::new(sentinel), name).await?.into_iter().collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The parts of the URL, of which there is one where servers belong together.
    fn parts(&self) -> UrlParts<'_> {
        let rest = self.url.split_once("://").map_or("", |(_, rest)| rest);
        let (authority, name) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rfind('@') {
            Some(end) => authority.split_at(end + 1),
            None => ("", authority),
        };
        UrlParts { credentials, hosts, name: name.split('/').next().unwrap_or_default() }
    }

    /// The servers that have the locks: one, the masters of a cluster, or all that are independent of each other.
    async fn masters(&self) -> Result<Vec<Resp>, HarnessError> {
        let UrlParts { credentials, hosts, name } = self.parts();
        let server = |address: &str| Resp::from_url(&format!("redis://{credentials}{address}/"));
        if self.url.starts_with("redis-cluster:") {
            return masters_among(hosts.split(',').map(server)).await;
        }
        if !self.url.starts_with("redis-sentinel:") {
            return self.url.split(' ').map(Resp::from_url).collect();
        }
        // User and password are the servers', not the sentinels'.
        for sentinel in hosts.split(',').map(Resp::new) {
            if let Some(master) = master_told_by(&sentinel, name).await? {
                return Ok(vec![server(&master)?]);
            }
        }
        Err(HarnessError::new("no sentinel knows the master"))
    }

    /// Replies of the servers that have this command's key: one, or all that are independent of each other.
    async fn command<P: AsRef<[u8]> + Sync>(&self, parts: &[P]) -> Result<Vec<Value>, HarnessError> {
        let mut replies = Vec::new();
        for master in self.masters().await? {
            match master.command(parts).await {
                Err(error) if error.to_string().starts_with("MOVED") => {}
                outcome => replies.push(outcome?),
            }
        }
        if replies.is_empty() { Err(HarnessError::new("there is no master")) } else { Ok(replies) }
    }
}

/// Whether more than half of them are such.
fn most(replies: &[Value], such: impl Fn(&Value) -> bool) -> bool {
    replies.iter().filter(|reply| such(reply)).count() > replies.len() / 2
}

async fn masters_among(nodes: impl Iterator<Item = Result<Resp, HarnessError>>) -> Result<Vec<Resp>, HarnessError> {
    let mut masters = Vec::new();
    for node in nodes {
        let node = node?;
        let role = node.command(&["ROLE"]).await?.into_parts();
        if role.first().and_then(Value::as_text).as_deref() == Some("master") {
            masters.push(node);
        }
    }
    Ok(masters)
}

async fn master_told_by(sentinel: &Resp, name: &str) -> Result<Option<String>, HarnessError> {
    let place = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]).await?.into_parts();
    Ok(if let [host, port] = &*place { Some(format!("{host}:{port}")) } else { None })
}

/// A network in which some places are reached at others: servers that tell clients their own addresses, behind proxies.
#[derive(Debug)]
struct Detour(HashMap<String, String>);

#[async_trait]
impl Network for Detour {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        let place = format!("{host}:{port}");
        let stream = TcpStream::connect(self.0.get(&place).unwrap_or(&place)).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }
}

#[async_trait]
impl<D: Arrangement> Harness for Redis<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    async fn start() -> Result<Self, Missing> {
        let servers = D::start().await?;
        let mut harness = Self::at(servers.url().to_owned(), Some(servers));
        harness.told = harness.told().await.map_err(|error| Missing::new(error.to_string()))?;
        Ok(harness)
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        Ok(Self::at(endpoint.to_owned(), None))
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.url.clone())
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        D::connect(&self.url, namespace).await
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
        (self.url.starts_with("redis://") || !self.told.is_empty()).then_some(self)
    }

    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        Some(self)
    }

    fn expected_ignored(&self) -> Option<PathBuf> {
        Some(
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("tests/conformance")
                .join(format!("{}.ignored", self.name().replace([' ', ','], "-"))),
        )
    }
}

#[async_trait]
impl<D: Arrangement> DisposableServers for Redis<D> {
    fn faults(&self) -> &'static [ServerFault] {
        D::FAULTS
    }

    async fn start(&self, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        D::disposable_server(fault).await
    }

    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        D::connect(server.url(), namespace).await
    }
}

#[async_trait]
impl<D: Arrangement> Linked for Redis<D> {
    fn protocol(&self) -> Protocol {
        Protocol::Resp
    }

    fn servers(&self) -> Vec<String> {
        if !self.told.is_empty() {
            return self.told.clone();
        }
        self.url.split(' ').map(|url| host_in(url).to_owned()).collect()
    }

    fn are_shards(&self) -> bool {
        self.url.starts_with("redis-cluster:")
    }

    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        if !self.told.is_empty() {
            let detour = Detour(self.told.iter().cloned().zip(addresses.iter().cloned()).collect());
            let config = RedisConfig::new(&self.url).with_prefix(namespace).with_network(Arc::new(detour));
            return Ok(RedisLocks::connect_with(config).await?.into());
        }
        let urls = self.url.split(' ').zip(addresses).map(|(url, address)| url.replace(host_in(url), address));
        D::connect(&urls.collect::<Vec<_>>().join(" "), namespace).await
    }

    fn refusals(&self) -> &'static [&'static str] {
        &[
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Errors writing to the AOF file: No space left on device",
            "NOAUTH Authentication required.",
        ]
    }
}

/// `host:port` of a server's URL.
fn host_in(url: &str) -> &str {
    let authority = url.split('/').nth(2).unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[async_trait]
impl<D: Deployment> GroundTruth for Redis<D> {
    /// Every key, but for the counters of tokens, which are kept for two hours, and the reasons of forced releases
    /// (`:x`), which end with the lease that they ended. A client's one channel is its own as long as it lives; that it
    /// ends with the client is checked in `mechanisms/`.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let mut keys = Vec::new();
        for master in self.masters().await? {
            keys.extend(master.command(&["KEYS", &format!("{namespace}:*")]).await?.into_parts());
        }
        let (counter, of_slot) = (format!("{namespace}:tokens"), format!("{namespace}:tokens:{{"));
        let is_kept = |key: &String| *key == counter || key.starts_with(&of_slot) || key.ends_with(":x");
        let left = keys.iter().filter_map(Value::as_text).filter(|key| !is_kept(key));
        Ok(left.collect())
    }
}

#[async_trait]
impl<D: Deployment> Admin for Redis<D> {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        let keys = keys(namespace, name);
        let del: Vec<_> = ["DEL"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        self.command(&del).await.map(drop)
    }

    fn takes_garbage(&self) -> bool {
        true
    }

    async fn put_garbage(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        for key in keys(namespace, name) {
            self.command(&["RPUSH", &key, "garbage"]).await?;
        }
        Ok(())
    }
}

/// The documented mapping for every kind, for names without `%` and braces.
fn keys(namespace: &str, name: &LockName) -> [String; 4] {
    ["mutex", "reentrant", "rwlock", "semaphore"].map(|kind| format!("{namespace}:{kind}:{{{name}}}"))
}

#[async_trait]
impl<D: Deployment> Foreign for Redis<D> {
    async fn try_hold(&self, key: &str, ttl: Duration) -> Result<bool, HarnessError> {
        let replies = self.command(&self.foreign.take(key, ttl)?).await?;
        let taken = most(&replies, Value::is_ok);
        if !taken && replies.iter().any(Value::is_ok) {
            self.release(key).await?;
        }
        Ok(taken)
    }

    async fn release(&self, key: &str) -> Result<bool, HarnessError> {
        Ok(most(&self.command(&self.foreign.release(key)).await?, |reply| reply.as_int() == Some(1)))
    }
}
