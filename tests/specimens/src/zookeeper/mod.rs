//! Broken locks on ZooKeeper.
//!
//! - [`Recipe::Herd`], waiters that all watch the directory: whoever comes or goes wakes everybody, and all of them list it.
//! - [`Recipe::LookedUpOnce`], a predecessor that is looked up once: when it gives up, whoever waited for it takes itself for
//!   the next, although somebody before both still holds.
//! - [`Recipe::SortedByName`], a queue that is sorted by the nodes' whole names: what stands before the number decides, and a
//!   newcomer comes before the holder.
//! - [`Recipe::PlainDelete`], one ephemeral node for the lock, deleted by its path: a holder whose session has ended deletes
//!   the node of whoever holds the lock by then.
//! - [`Recipe::Persistent`], nodes that belong to no session: those of the dead stay.
//! - [`Recipe::Unasked`], a holder that believes in its lock until it releases it: it never asks whether its node went
//!   with its session.
//! - [`Recipe::Placeless`], a waiter that looks for nodes before its own, but not for its own: when that went with its session,
//!   it is let in without a node, and so is the next one.
//! - [`Recipe::Nameless`], nodes that do not tell whose they are: the node of a request that was not answered is never found
//!   again, and stands in everybody's way for as long as its session lasts.
//! - [`Recipe::Hasty`], a new session for every connection: the nodes of the old one end with it, although the servers would
//!   have kept them for whoever comes back in time.
//! - [`Recipe::LaterWriters`], readers that wait for every writer in the queue: one that came later waits for them in turn, and nobody
//!   gets the lock although it is free.

mod operator;
mod queue;
mod rwlock;
mod session;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, Locks};
use lock_testkit::faults::Proof;
use lock_testkit::{
    DisposableServer, DisposableServers, GroundTruth, Harness, HarnessError, Missing, ServerFault, Sessions,
};
use lock_testkit_servers::faults::StoreFault;
use lock_testkit_servers::zookeeper::{ZooKeeperClient, ZooKeeperEnsemble, ZooKeeperServer};

use self::queue::Queue;
use self::session::{Session, TIMEOUT};
use super::{Rejection, backend};

/// A way to acquire and release a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Recipe {
    /// Ephemeral nodes with a number and a nonce; whoever has nobody before it holds, and everybody else watches the last one
    /// before it. To a reader, only writers count. Sound as far as the cases here go.
    Reference,
    /// Watches the whole directory.
    Herd,
    /// Looks its predecessor up once.
    LookedUpOnce,
    /// Sorts the queue by whole names.
    SortedByName,
    /// One node, deleted by its path.
    PlainDelete,
    /// Nodes that do not end with the session.
    Persistent,
    /// Never asks whether its node is still there.
    Unasked,
    /// Waits without looking for its own node.
    Placeless,
    /// Nodes without a nonce.
    Nameless,
    /// Gives its session up with its connection.
    Hasty,
    /// Waits as a reader for writers that came later.
    LaterWriters,
}

/// Every specimen with the case that rejects it.
pub const REJECTIONS: &[Rejection<Recipe>] = &[
    Rejection { recipe: Recipe::Herd, case: "C-W15", symptom: "a herd makes" },
    Rejection { recipe: Recipe::LookedUpOnce, case: "C-W06", symptom: "a wait behind one that gave up" },
    Rejection { recipe: Recipe::SortedByName, case: "C-M02", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::PlainDelete, case: "C-F07", symptom: "granted although somebody holds it" },
    Rejection { recipe: Recipe::Persistent, case: "C-R06", symptom: "still taken although the dead holder" },
    Rejection { recipe: Recipe::Unasked, case: "C-D01", symptom: "the holder is told: not within" },
    Rejection { recipe: Recipe::Placeless, case: "C-F08", symptom: "granted although somebody holds it" },
    // The node of a future that was dropped, or of a wait, whichever came first in the queue.
    Rejection { recipe: Recipe::Nameless, case: "C-W08", symptom: "dropped at poll" },
    Rejection { recipe: Recipe::Hasty, case: "C-F09", symptom: "the loss signal after a failover" },
    Rejection {
        recipe: Recipe::LaterWriters,
        case: "C-RW15",
        symptom: "a free lock is granted to one of those who wait",
    },
];

/// The harness of one specimen on a ZooKeeper server.
#[derive(Debug)]
pub struct Specimen {
    recipe: Recipe,
    url: String,
    machines: AtomicU32,
}

impl Specimen {
    /// This recipe on the server at `zk://host:port`.
    #[must_use]
    pub fn new(recipe: Recipe, url: impl Into<String>) -> Self {
        Self { recipe, url: url.into(), machines: AtomicU32::new(0) }
    }
}

#[async_trait]
impl Harness for Specimen {
    fn name(&self) -> &'static str {
        self.recipe.name()
    }

    async fn start() -> Result<Self, Missing> {
        Err(Missing::new("a specimen is made of a recipe and a running server"))
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        self.client(&self.url, TIMEOUT, namespace).await
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
    }

    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        Some(self)
    }

    /// Until its session ends; the server looks for dead sessions once a tick.
    fn kept_for(&self, _ttl: Duration) -> Duration {
        TIMEOUT + Duration::from_millis(400)
    }
}

impl Specimen {
    async fn client(&self, url: &str, timeout: Duration, namespace: &str) -> Result<Locks, Error> {
        let session = Session::open(url, timeout).await.map_err(|error| backend::unavailable(&error))?;
        let machine = self.machines.fetch_add(1, Ordering::Relaxed);
        let client = backend::client(Queue::new(self.recipe, machine, session, namespace))?;
        Ok(Locks::new(&client).with_rwlock(&client))
    }
}

#[async_trait]
impl DisposableServers for Specimen {
    fn faults(&self) -> &'static [ServerFault] {
        &[ServerFault::FailOver]
    }

    async fn start(&self, _: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Ok(Box::new(ZooKeeperEnsemble::start_own().await?))
    }

    /// With a session that outlasts any election.
    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        self.client(server.url(), TIMEOUT * 5, namespace).await
    }
}

#[async_trait]
impl GroundTruth for Specimen {
    /// Every node below the directory of a lock.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let eyes = ZooKeeperClient::connect(&self.url).await?;
        let nodes = eyes.descendants(&format!("/{namespace}")).await?;
        eyes.close().await?;
        Ok(nodes.into_iter().filter(|path| path.split('/').count() > 3).collect())
    }
}

#[async_trait]
impl Sessions for Specimen {
    async fn present(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let eyes = ZooKeeperClient::connect(&self.url).await?;
        let sessions = eyes.sessions_below(&format!("/{namespace}")).await?;
        eyes.close().await?;
        Ok(sessions.iter().map(ToString::to_string).collect())
    }

    async fn end(&self, session: &str) -> Result<Proof, HarnessError> {
        let fault = StoreFault::StealSession { session: session.parse()? };
        Ok(fault.inject(&ZooKeeperServer::existing(self.url.as_str())).await?.proof())
    }
}

impl Recipe {
    /// A short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Reference => "the sound reference on ZooKeeper",
            Self::Herd => "waiters that all watch the parent",
            Self::LookedUpOnce => "a predecessor that is looked up once",
            Self::SortedByName => "a queue sorted by names",
            Self::PlainDelete => "one node, deleted by its path",
            Self::Persistent => "nodes without a session",
            Self::Unasked => "a holder that does not ask for its node",
            Self::Placeless => "a waiter that does not ask for its node",
            Self::Nameless => "nodes without a nonce",
            Self::Hasty => "a session that ends with its connection",
            Self::LaterWriters => "a shared lock that counts later writers",
        }
    }
}
