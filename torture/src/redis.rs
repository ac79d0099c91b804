//! Redis: a server that is started, with an append-only file, or an existing one.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_redis::{RedisConfig, RedisLocks};
use lock_testkit::HarnessError;
use lock_testkit::proxy::Protocol;
use lock_testkit_servers::redis::{RedisOptions, RedisServer};
use lock_testkit_servers::resp::{Resp, Value};

use crate::faults::Fault;
use crate::links::WorkerLinks;
use crate::servers::{Frozen, Restarted};
use crate::system::SystemUnderTest;

/// The time for which ground truth waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);

/// One server, and the workers' way to it.
pub(crate) struct Redis {
    server: Arc<RedisServer>,
    links: WorkerLinks,
    eyes: Resp,
}

/// The locks of a Redis server.
pub(crate) async fn connect(url: &str, namespace: &str) -> Result<Locks, Error> {
    Ok(RedisLocks::connect_with(RedisConfig::new(url).with_prefix(namespace)).await?.into())
}

impl Redis {
    pub(crate) async fn start(url: Option<&str>) -> Result<Self, HarnessError> {
        let server = match url {
            Some(url) => RedisServer::existing(url),
            None => RedisServer::start_with(&RedisOptions::new().persistent()).await?,
        };
        let links = WorkerLinks::to(server.url(), 6379, Protocol::Resp)?;
        Ok(Self { eyes: server.client()?, links, server: Arc::new(server) })
    }
}

#[async_trait]
impl SystemUnderTest for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn url(&self) -> String {
        self.links.url().to_owned()
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect(self.server.url(), namespace).await
    }

    fn has_processes(&self) -> bool {
        true
    }

    fn links(&self) -> Result<Option<WorkerLinks>, HarnessError> {
        WorkerLinks::to(self.server.url(), 6379, Protocol::Resp).map(Some)
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

    /// The grant is what the key's text begins with.
    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>> {
        let key = format!("{namespace}:mutex:{{{mutex}}}");
        let get = ["GET", &key];
        let value = tokio::time::timeout(PATIENCE, self.eyes.command(&get)).await.ok()?.ok()?;
        Some(value.as_text().map(|text| text.chars().take(32).collect()))
    }

    /// Every key but the counter of tokens, records, and the reasons of forced releases, which are kept on purpose.
    async fn residue(&self, namespace: &str) -> Option<Result<Vec<String>, HarnessError>> {
        let keys = self.eyes.command(&["KEYS", &format!("{namespace}:*")]).await;
        let counter = format!("{namespace}:tokens");
        let is_kept = |key: &String| *key == counter || [":r", ":x"].iter().any(|end| key.ends_with(end));
        Some(keys.map(|keys| keys.into_parts().iter().filter_map(Value::as_text).filter(|key| !is_kept(key)).collect()))
    }
}

/// Has forgotten its scripts.
struct Flushed(Arc<RedisServer>);

#[async_trait]
impl Fault for Flushed {
    fn name(&self) -> &'static str {
        "flush-scripts"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        let flushed = self.0.client()?.command(&["SCRIPT", "FLUSH"]).await?;
        Ok(flushed.is_ok().then(|| "SCRIPT FLUSH was answered with OK".to_owned()))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        Ok(())
    }
}
