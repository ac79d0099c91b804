//! Three masters with a replica each, which share the slots.

use futures_util::future::try_join_all;
use lock_testkit::ms;
use lock_testkit::{HarnessError, Missing};
use lock_testkit_proxy::ports::BUS;

use super::members::{Members, NodeRecord, own_id, works_for};
use super::migration::Migration;
use super::options::RedisOptions;
use super::server::RedisServer;
use crate::until::until;
use crate::url::{Credentials, ServerUrl, authority};

/// The variable that points the suite at an existing cluster instead
/// (`redis-cluster://[user:password@]host:port[,host:port...]`).
pub const CLUSTER_URL_VARIABLE: &str = "LOCK_TESTKIT_REDIS_CLUSTER_URL";

const MASTERS: u16 = 3;
const SLOTS: u16 = 16_384;
/// The silence after which a node counts as failed, in milliseconds.
const NODE_TIMEOUT: &str = "1500";
/// The time in which nodes know each other, or have failed over: usually 2 to 4 s, in milliseconds.
const PATIENCE: u64 = 60_000;

/// Three masters with a replica each, on loopback ports: 1.5 s of silence is a failure. Gone when it is dropped, and
/// when the suite is killed.
///
/// Each node is a [`RedisServer`], which can be frozen, killed and restarted by itself. A master without persistence
/// that is restarted before its replica has taken over comes back as an empty master.
#[derive(Debug)]
pub struct ClusterDeployment {
    url: String,
    nodes: Vec<RedisServer>,
    credentials: Option<Credentials>,
}

impl ClusterDeployment {
    /// The cluster that [`CLUSTER_URL_VARIABLE`] names, or else one of our own.
    ///
    /// # Errors
    /// [`Missing`], with what is missing or went wrong.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(CLUSTER_URL_VARIABLE) {
            Ok(url) => Ok(Self::existing(url).await?),
            Err(_) => Self::start_own().await,
        }
    }

    /// A cluster of our own even where [`CLUSTER_URL_VARIABLE`] names one.
    ///
    /// # Errors
    /// As [`start`](ClusterDeployment::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&RedisOptions::new()).await
    }

    /// A cluster of our own whose nodes run like this. Between each other they use their ports without TLS.
    ///
    /// # Errors
    /// As [`start`](ClusterDeployment::start).
    pub async fn start_with(options: &RedisOptions) -> Result<Self, Missing> {
        let member = options.clone().with_defaults(&[
            ("cluster-enabled", "yes"),
            ("cluster-node-timeout", NODE_TIMEOUT),
            // However long a replica was without its master, it takes over.
            ("cluster-replica-validity-factor", "0"),
        ]);
        let nodes = try_join_all((0..2 * MASTERS).map(|_| RedisServer::start_with(&member))).await?;
        let url = url_of(&nodes, options.credentials());
        let cluster = Self { url, nodes, credentials: options.credentials().cloned() };
        cluster.form().await?;
        Ok(cluster)
    }

    /// The cluster that runs at this URL, which is not ours to stop:
    /// `redis-cluster://[user:password@]host:port[,host:port...]`. The first node named there tells the others, and the
    /// [`url`](ClusterDeployment::url) has the addresses that it tells.
    ///
    /// # Errors
    /// If the URL has another form, or there is no complete cluster.
    pub async fn existing(url: impl Into<String>) -> Result<Self, HarnessError> {
        let url = url.into();
        let ServerUrl { scheme, credentials, addresses, .. } = ServerUrl::parse(&url, 6379)?;
        let [first, ..] = addresses.as_slice() else { return Err(HarnessError::new("the URL names no node")) };
        if scheme != "redis-cluster" {
            return Err(HarnessError::new("the URL of a cluster should read redis-cluster://host:port,host:port"));
        }
        let node =
            |address: &str| RedisServer::existing(format!("redis://{}{address}/", authority(credentials.as_ref())));
        let members = Members::known_to(&node(first)).await?;
        let nodes: Vec<_> = members.all().iter().map(|member| node(&member.address)).collect();
        let url = url_of(&nodes, credentials.as_ref());
        let cluster = Self { url, nodes, credentials };
        cluster.until_ready().await?;
        Ok(cluster)
    }

    /// The URL that clients connect to: `redis-cluster://[user:password@]host:port,host:port,...`, with every node.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All nodes: first those that were masters at first, then a replica of each, in the same order. An existing
    /// cluster's are in no order.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The slot of this key.
    ///
    /// # Errors
    /// If no node answers.
    pub async fn slot_of(&self, key: &str) -> Result<u16, HarnessError> {
        let slot = self.any()?.client()?.command(&["CLUSTER", "KEYSLOT", key]).await?.as_int();
        slot.and_then(|slot| u16::try_from(slot).ok()).ok_or_else(|| HarnessError::new("no slot"))
    }

    /// The master that owns this slot, as the first node that runs knows it.
    ///
    /// # Errors
    /// If nobody owns it.
    pub async fn master_of(&self, slot: u16) -> Result<&RedisServer, HarnessError> {
        self.node(Members::known_to(self.any()?).await?.owner_of(slot)?)
    }

    /// A replica of the master that owns this slot.
    ///
    /// # Errors
    /// If nobody owns it, or the owner has no replica.
    pub async fn replica_of(&self, slot: u16) -> Result<&RedisServer, HarnessError> {
        let members = Members::known_to(self.any()?).await?;
        let follower = members.followers_of(members.owner_of(slot)?).next();
        self.node(follower.ok_or_else(|| HarnessError::new(format!("the owner of the slot {slot} has no replica")))?)
    }

    /// Hands a slot's master's part over to its replica as an operator does (`CLUSTER FAILOVER`), and waits until every
    /// node knows it.
    ///
    /// # Errors
    /// If there is no replica, it refuses, or it takes too long.
    pub async fn fail_over(&self, slot: u16) -> Result<&RedisServer, HarnessError> {
        let old = self.master_of(slot).await?;
        self.replica_of(slot).await?.client()?.command(&["CLUSTER", "FAILOVER"]).await?;
        self.until_another_master(slot, old).await
    }

    /// Begins to move a slot to another master. Until it is finished, the old owner answers ASK for keys that it does
    /// not have, and the new one (from 7 on, the old one too) TRYAGAIN for commands with keys on either side.
    ///
    /// # Errors
    /// If a node refuses.
    pub async fn migrate(&self, slot: u16, to: &RedisServer) -> Result<Migration<'_>, HarnessError> {
        let from = self.master_of(slot).await?;
        let to = self.node(Members::known_to(from).await?.at(to.address())?)?;
        Migration::begin(&self.nodes, self.credentials.as_ref(), slot, from, to).await
    }

    /// Waits until every node that runs knows another master of this slot than this one, and says that the cluster
    /// works.
    ///
    /// # Errors
    /// If it takes too long, with what was missing in the end.
    pub async fn until_another_master(&self, slot: u16, old: &RedisServer) -> Result<&RedisServer, HarnessError> {
        until("another master", ms(PATIENCE), || self.another_master(slot, old)).await
    }

    /// Waits until all nodes are there, see the same cluster, and say that it works, and every replica follows its
    /// master.
    ///
    /// # Errors
    /// If it takes too long, with what was missing in the end.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        until("a complete cluster", ms(PATIENCE), || self.ready()).await
    }

    async fn another_master(&self, slot: u16, old: &RedisServer) -> Result<&RedisServer, HarnessError> {
        let master = self.master_of(slot).await?;
        for node in self.running() {
            let known = Members::known_to(node).await?.owner_of(slot)?.address.clone();
            if known != master.address() || known == old.address() {
                return Err(HarnessError::new(format!("to {}, {known} owns the slot {slot}", node.address())));
            }
            works_for(node).await?;
        }
        Ok(master)
    }

    async fn ready(&self) -> Result<(), HarnessError> {
        let members = Members::known_to(self.any()?).await?;
        members.complete(self.nodes.len())?;
        for node in &self.nodes {
            let known = Members::known_to(node).await?;
            if known != members {
                return Err(HarnessError::new(format!("{} knows {known:?} instead of {members:?}", node.address())));
            }
            works_for(node).await?;
        }
        for master in members.all() {
            for follower in members.followers_of(master) {
                self.node(follower)?.follows(&master.address).await?;
            }
        }
        Ok(())
    }

    /// Makes a cluster of nodes that know nothing of each other.
    async fn form(&self) -> Result<(), HarnessError> {
        let (masters, replicas) = self.nodes.split_at(usize::from(MASTERS));
        for (node, epoch) in self.nodes.iter().zip(1..) {
            node.client()?.command(&["CLUSTER", "SET-CONFIG-EPOCH", &i32::to_string(&epoch)]).await?;
        }
        try_join_all(masters.iter().zip(0..).map(|(master, number)| own_share(master, number))).await?;
        for (met, node) in self.nodes.iter().enumerate() {
            let others = self.nodes.iter().skip(met + 1);
            try_join_all(others.map(|other| introduce(node, other))).await?;
        }
        let pairs = masters.iter().zip(replicas);
        try_join_all(pairs.map(|(master, replica)| follow(replica, master))).await?;
        self.until_ready().await
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn any(&self) -> Result<&RedisServer, HarnessError> {
        self.running().next().ok_or_else(|| HarnessError::new("no node runs"))
    }

    fn node(&self, member: &NodeRecord) -> Result<&RedisServer, HarnessError> {
        let node = self.nodes.iter().find(|node| node.address() == member.address);
        node.ok_or_else(|| HarnessError::new(format!("{} is not a node that we know", member.address)))
    }
}

/// Returns the URL that names all of these nodes.
fn url_of(nodes: &[RedisServer], credentials: Option<&Credentials>) -> String {
    let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
    format!("redis-cluster://{}{}", authority(credentials), addresses.join(","))
}

/// Gives a master its share of the slots.
async fn own_share(master: &RedisServer, number: u16) -> Result<(), HarnessError> {
    // One by one: ranges (ADDSLOTSRANGE) are not known before 7.
    let first = |number: u16| u32::from(SLOTS) * u32::from(number) / u32::from(MASTERS);
    let slots = (first(number)..first(number + 1)).map(|slot| slot.to_string());
    let command: Vec<_> = ["CLUSTER", "ADDSLOTS"].map(str::to_owned).into_iter().chain(slots).collect();
    master.client()?.command(&command).await.map(drop)
}

async fn introduce(node: &RedisServer, other: &RedisServer) -> Result<(), HarnessError> {
    let port = other.port().unwrap_or_default();
    let command = ["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &(port + BUS).to_string()];
    node.client()?.command(&command).await.map(drop)
}

/// Makes the one a replica of the other, as soon as it has heard of it.
async fn follow(replica: &RedisServer, master: &RedisServer) -> Result<(), HarnessError> {
    let id = own_id(master).await?;
    until("an introduction", ms(PATIENCE), || async {
        replica.client()?.command(&["CLUSTER", "REPLICATE", &id]).await.map(drop)
    })
    .await
}
