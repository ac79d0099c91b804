//! memcached: a server that is started, or an existing one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{ClientOptions, Error, LeaseOptions, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks};
use lock_testkit::HarnessError;
use lock_testkit::proxy::Protocol;
use lock_testkit_servers::memcached::MemcachedServer;

use crate::faults::Fault;
use crate::links::WorkerLinks;
use crate::servers::{Frozen, Restarted};
use crate::system::SystemUnderTest;

/// The time for which ground truth waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// An item outlives its lease by up to 6 s, and nothing is granted for up to 4 s more than the longest lease when the
/// server has forgotten its locks.
const LONGER: Duration = Duration::from_secs(6);

/// One server, and the workers' way to it.
pub(crate) struct Memcached {
    server: Arc<MemcachedServer>,
    links: WorkerLinks,
    ttl: Duration,
}

/// The locks of a memcached server, none of which has a longer lease than this.
pub(crate) async fn connect(url: &str, namespace: &str, ttl: Duration) -> Result<Locks, Error> {
    let mut client = ClientOptions::default();
    client.lease = LeaseOptions::new(ttl);
    let config = MemcachedConfig::new(url).with_prefix(namespace).with_client(client);
    let longest = ttl.max(Duration::from_secs(1));
    Ok(MemcachedLocks::connect_with(config.with_longest_lease(longest)).await?.into())
}

impl Memcached {
    pub(crate) async fn start(url: Option<&str>, ttl: Duration) -> Result<Self, HarnessError> {
        let server = match url {
            Some(url) => MemcachedServer::existing(url)?,
            None => MemcachedServer::start_own().await?,
        };
        let links = WorkerLinks::to(server.url(), 11211, Protocol::Memcached)?;
        Ok(Self { server: Arc::new(server), links, ttl })
    }

    async fn text(&self, key: &str) -> Option<Option<String>> {
        let client = self.server.client();
        let value = tokio::time::timeout(PATIENCE, client.get(key)).await.ok()?.ok()?;
        Some(value.map(|value| String::from_utf8_lossy(&value).into_owned()))
    }
}

#[async_trait]
impl SystemUnderTest for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn url(&self) -> String {
        self.links.url().to_owned()
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect(self.server.url(), namespace, self.ttl).await
    }

    fn has_processes(&self) -> bool {
        true
    }

    fn recovery(&self) -> Duration {
        self.ttl + LONGER
    }

    fn kept_for(&self, ttl: Duration) -> Duration {
        ttl + LONGER
    }

    fn tries_meet(&self) -> bool {
        true
    }

    fn links(&self) -> Result<Option<WorkerLinks>, HarnessError> {
        WorkerLinks::to(self.server.url(), 11211, Protocol::Memcached).map(Some)
    }

    fn faults(&self, seed: u64) -> Vec<Box<dyn Fault>> {
        let (server, mut faults) = (&self.server, self.links.faults(seed));
        if server.pid().is_some() {
            faults.push(Box::new(Frozen(server.clone())));
            faults.push(Box::new(Restarted(server.clone())));
            faults.push(Box::new(Flushed(server.clone())));
        }
        faults
    }

    /// The item has the grant's number; whose that is is told beside it, a moment later.
    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>> {
        let Some(number) = self.text(&format!("{namespace}:mutex:{mutex}")).await? else { return Some(None) };
        let record = self.text(&format!("{namespace}:holder:{number}")).await??;
        let record: serde_json::Value = serde_json::from_str(&record).ok()?;
        Some(Some(record.get("grant")?.as_str()?.to_owned()))
    }

    /// Every item but the epoch, the limits of semaphores, which outlive their permits, the room for readers, and records, and
    /// what only tells of holders.
    async fn residue(&self, namespace: &str) -> Option<Result<Vec<String>, HarnessError>> {
        let is_kept = |rest: &str| {
            matches!(rest, "epoch" | "readers")
                || rest.ends_with(":limit")
                || rest.starts_with("holder:")
                || rest.starts_with("forced:")
                || rest.starts_with("record:")
        };
        let prefix = format!("{namespace}:");
        let is_left = |key: &String| key.strip_prefix(&prefix).is_some_and(|rest| !is_kept(rest));
        let items = self.server.client().items().await;
        Some(items.map(|items| items.into_iter().map(|item| item.key).filter(is_left).collect()))
    }
}

/// Has forgotten everything.
struct Flushed(Arc<MemcachedServer>);

#[async_trait]
impl Fault for Flushed {
    fn name(&self) -> &'static str {
        "flush-server"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        let reply = self.0.client().command("flush_all").await?;
        Ok((reply == "OK").then(|| "flush_all was answered with OK".to_owned()))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        Ok(())
    }
}
