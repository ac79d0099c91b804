//! ZooKeeper: a server that is started, or an existing deployment.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::HarnessError;
use lock_testkit::proxy::Protocol;
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperServer, tick_time};
use lock_zk::{ZkConfig, ZkLocks};

use crate::faults::Fault;
use crate::line::{first_in_line, grant, number};
use crate::links::WorkerLinks;
use crate::servers::{Frozen, Restarted};
use crate::system::SystemUnderTest;
use crate::theft::Stolen;

/// The time for which ground truth waits for an answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// The least session of a client: shorter than the longest faults of leases of 2 s, longer than the others.
const SESSION: Duration = Duration::from_secs(4);

/// One server, or several that were there before, and the workers' way to them.
pub(crate) struct ZooKeeper {
    server: Arc<ZooKeeperServer>,
    links: WorkerLinks,
    eyes: ZooKeeperClient,
    /// The servers' `tickTime`.
    tick: Duration,
    /// Of the run, once it is known.
    namespace: Arc<OnceLock<String>>,
}

/// The locks of a ZooKeeper server.
pub(crate) async fn connect(url: &str, namespace: &str, tick: Duration) -> Result<Locks, Error> {
    let config = ZkConfig::new(url).with_prefix(namespace).with_session_timeout(session(tick)).with_tick_time(tick);
    Ok(ZkLocks::connect_with(config).await?.into())
}

/// The session of every client. Of three ticks a tick and a fifth are not believed in, which leaves more than one.
fn session(tick: Duration) -> Duration {
    SESSION.max(tick * 3)
}

impl ZooKeeper {
    pub(crate) async fn start(url: Option<&str>) -> Result<Self, HarnessError> {
        let server = match url {
            Some(url) => ZooKeeperServer::existing(url),
            None => ZooKeeperServer::start_own().await?,
        };
        let links = WorkerLinks::to(server.url(), 2181, Protocol::ZooKeeper)?;
        let (tick, namespace) = (tick_time(url.is_some())?, Arc::default());
        Ok(Self { eyes: server.client().await?, server: Arc::new(server), links, tick, namespace })
    }
}

#[async_trait]
impl SystemUnderTest for ZooKeeper {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn url(&self) -> String {
        self.links.url().to_owned()
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        self.namespace.get_or_init(|| namespace.to_owned());
        connect(self.server.url(), namespace, self.tick).await
    }

    fn has_processes(&self) -> bool {
        true
    }

    /// The entries of a dead client go with its session.
    fn recovery(&self) -> Duration {
        Duration::from_secs(2) + session(self.tick) + self.tick
    }

    fn kept_for(&self, _ttl: Duration) -> Duration {
        session(self.tick) + self.tick
    }

    fn tries_meet(&self) -> bool {
        true
    }

    fn links(&self) -> Result<Option<WorkerLinks>, HarnessError> {
        WorkerLinks::to(self.server.url(), 2181, Protocol::ZooKeeper).map(Some)
    }

    fn faults(&self, seed: u64) -> Vec<Box<dyn Fault>> {
        let (server, mut faults) = (&self.server, self.links.faults(seed));
        if server.pid().is_some() {
            faults.push(Box::new(Frozen(server.clone())));
            faults.push(Box::new(Restarted(server.clone())));
            faults.push(Box::new(Stolen::of(server.clone(), self.namespace.clone())));
        }
        faults
    }

    /// The first in the queue.
    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>> {
        let first = tokio::time::timeout(PATIENCE, first_in_line(&self.eyes, namespace, mutex)).await.ok()?.ok()?;
        Some(first.as_deref().and_then(grant))
    }

    /// Every node with a number; the reasons of forced releases, and directories, are kept on purpose.
    async fn residue(&self, namespace: &str) -> Option<Result<Vec<String>, HarnessError>> {
        // Nobody may have asked for long, and the session that looks have ended.
        let eyes = match self.server.client().await {
            Ok(eyes) => eyes,
            Err(error) => return Some(Err(error)),
        };
        let nodes = eyes.descendants(&format!("/{namespace}")).await;
        Some(nodes.map(|nodes| nodes.into_iter().filter(|path| number(path).is_some()).collect()))
    }
}
