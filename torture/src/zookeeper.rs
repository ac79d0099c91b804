//! ZooKeeper: a server that is started, or an existing deployment.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::Broken;
use lock_testkit::servers::zookeeper::{ZooKeeperClient, ZooKeeperServer};
use lock_zk::{ZkConfig, ZkLocks};

use crate::arena::Arena;
use crate::faults::Trouble;
use crate::servers::{Frozen, Restarted};
use crate::worker::COUNTERS;

/// For how long ground truth waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// The session of every client: shorter than the longest faults of leases of 2 s, longer than the others.
const SESSION: Duration = Duration::from_secs(4);
/// The tick of the testkit's servers.
const TICK: Duration = Duration::from_millis(200);
/// A session's client takes it back at once, so a thief may have to try again.
const THEFT: Duration = Duration::from_secs(2);

/// One server.
pub(crate) struct ZooKeeper {
    server: Arc<ZooKeeperServer>,
    eyes: ZooKeeperClient,
    /// Of the run, once it is known.
    namespace: Arc<OnceLock<String>>,
}

/// The locks of a ZooKeeper server.
pub(crate) async fn connect(url: &str, namespace: &str) -> Result<Locks, Error> {
    let config = ZkConfig::new(url).with_prefix(namespace).with_session_timeout(SESSION).with_tick_time(TICK);
    Ok(ZkLocks::connect_with(config).await?.into())
}

impl ZooKeeper {
    pub(crate) async fn start(url: Option<&str>) -> Result<Self, Broken> {
        let server = match url {
            Some(url) => ZooKeeperServer::existing(url),
            None => ZooKeeperServer::start_own().await?,
        };
        Ok(Self { eyes: server.client().await?, server: Arc::new(server), namespace: Arc::default() })
    }
}

#[async_trait]
impl Arena for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn url(&self) -> String {
        self.server.url().to_owned()
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        self.namespace.get_or_init(|| namespace.to_owned());
        connect(self.server.url(), namespace).await
    }

    fn has_processes(&self) -> bool {
        true
    }

    /// What a dead client has goes with its session.
    fn recovery(&self) -> Duration {
        Duration::from_secs(2) + SESSION + TICK
    }

    fn tries_meet(&self) -> bool {
        true
    }

    fn troubles(&self, _seed: u64) -> Vec<Box<dyn Trouble>> {
        if self.server.pid().is_none() {
            return Vec::new(); // somebody else's
        }
        let server = &self.server;
        vec![
            Box::new(Frozen(server.clone())),
            Box::new(Restarted(server.clone())),
            Box::new(Stolen(server.clone(), self.namespace.clone())),
        ]
    }

    /// The first in line; its node's name has the grant's id as a UUID.
    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>> {
        let first = tokio::time::timeout(PATIENCE, first_in_line(&self.eyes, namespace, mutex)).await.ok()?.ok()?;
        let uuid = |name: String| Some(name.strip_prefix("_c_")?.split_once("-lock-")?.0.replace('-', ""));
        Some(first.and_then(uuid))
    }

    /// Every node with a number; the reasons of forced releases, and directories, are kept on purpose.
    async fn residue(&self, namespace: &str) -> Option<Result<Vec<String>, Broken>> {
        let nodes = self.eyes.descendants(&format!("/{namespace}")).await;
        Some(nodes.map(|nodes| nodes.into_iter().filter(|path| number(path).is_some()).collect()))
    }
}

/// Whoever has the mutex, or is about to be told so.
async fn first_in_line(eyes: &ZooKeeperClient, namespace: &str, mutex: &str) -> Result<Option<String>, Broken> {
    let line = eyes.children(&format!("/{namespace}/mutex/{mutex}")).await?.unwrap_or_default();
    Ok(line.into_iter().min_by_key(|name| number(name)))
}

/// The number at the end of a node's name.
fn number(name: &str) -> Option<i32> {
    name.get(name.len().checked_sub(10)?..)?.parse().ok()
}

/// The session of whoever has the mutex before the counters is taken over and closed.
struct Stolen(Arc<ZooKeeperServer>, Arc<OnceLock<String>>);

impl Stolen {
    /// The session that has the mutex.
    async fn victim(&self, eyes: &ZooKeeperClient) -> Result<Option<i64>, Broken> {
        let Some(namespace) = self.1.get() else { return Ok(None) };
        let Some(first) = first_in_line(eyes, namespace, COUNTERS).await? else { return Ok(None) };
        let path = format!("/{namespace}/mutex/{COUNTERS}/{first}");
        Ok(eyes.exists(&path).await?.map(|stat| stat.ephemeral_owner))
    }
}

#[async_trait]
impl Trouble for Stolen {
    fn name(&self) -> &'static str {
        "steal-session"
    }

    fn takes_locks(&self) -> bool {
        true
    }

    async fn begin(&mut self) -> Result<Option<String>, Broken> {
        let (eyes, began) = (self.0.client().await?, Instant::now());
        while began.elapsed() < THEFT {
            let Some(session) = self.victim(&eyes).await? else { continue };
            if self.0.expire(session).await.is_ok() {
                eyes.close().await?;
                return Ok(Some(format!("the server has closed the session {session:#x}")));
            }
        }
        eyes.close().await?;
        Ok(None)
    }

    async fn heal(&mut self) -> Result<(), Broken> {
        Ok(())
    }
}
