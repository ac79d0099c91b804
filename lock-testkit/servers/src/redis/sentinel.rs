//! A master with two replicas, watched by three sentinels.

use futures_util::future::try_join_all;
use lock_testkit::ms;
use lock_testkit::{HarnessError, Missing};

use super::options::RedisOptions;
use super::server::RedisServer;
use crate::resp::Value;
use crate::until::until;
use crate::url::{Credentials, ServerUrl, authority};

/// The variable that points the suite at an existing deployment instead
/// (`redis-sentinel://[user:password@]host:port[,host:port...]/master-name`).
pub const SENTINEL_URL_VARIABLE: &str = "LOCK_TESTKIT_REDIS_SENTINEL_URL";

const MASTER_NAME: &str = "mymaster";
const REPLICAS: usize = 2;
const SENTINELS: usize = 3;
const QUORUM: &str = "2";
/// The silence after which a master counts as down, in milliseconds. Below a second, a busy machine is taken for a dead
/// one, and fails over for no reason.
const DOWN_AFTER: &str = "1000";
/// After twice this time, in milliseconds, a failover that did not come about is tried again.
const FAILOVER_TIMEOUT: &str = "10000";
/// The time in which sentinels and replicas know each other, or have failed over: usually 2 to 4 s, in milliseconds.
const PATIENCE: u64 = 60_000;

/// A master with two replicas, watched by three sentinels, on loopback ports: 1 s of silence is a failure, two sentinels
/// are a quorum. Gone when it is dropped, and when the suite is killed.
///
/// Each server is a [`RedisServer`], which can be frozen, killed and restarted by itself.
#[derive(Debug)]
pub struct SentinelDeployment {
    url: String,
    master_name: String,
    sentinels: Vec<RedisServer>,
    nodes: Vec<RedisServer>,
}

impl SentinelDeployment {
    /// The deployment that [`SENTINEL_URL_VARIABLE`] names, or else one of our own.
    ///
    /// # Errors
    /// [`Missing`], with what is missing or went wrong.
    pub async fn start() -> Result<Self, Missing> {
        match std::env::var(SENTINEL_URL_VARIABLE) {
            Ok(url) => Ok(Self::existing(url).await?),
            Err(_) => Self::start_own().await,
        }
    }

    /// A deployment of our own even where [`SENTINEL_URL_VARIABLE`] names one.
    ///
    /// # Errors
    /// As [`start`](SentinelDeployment::start).
    pub async fn start_own() -> Result<Self, Missing> {
        Self::start_with(&RedisOptions::new()).await
    }

    /// A deployment of our own whose master and replicas run like this. The sentinels watch their ports without TLS.
    ///
    /// # Errors
    /// As [`start`](SentinelDeployment::start).
    pub async fn start_with(options: &RedisOptions) -> Result<Self, Missing> {
        let master = RedisServer::start_with(options).await?;
        let port = master.port().unwrap_or_default().to_string();
        let follower = options.clone().with_directive("replicaof", &format!("127.0.0.1 {port}"));
        let sentinel = watching(&port, options.credentials());
        let (replicas, sentinels) = tokio::try_join!(
            try_join_all((0..REPLICAS).map(|_| RedisServer::start_with(&follower))),
            try_join_all((0..SENTINELS).map(|_| RedisServer::start_with(&sentinel))),
        )?;
        let addresses: Vec<_> = sentinels.iter().map(RedisServer::address).collect();
        let url = format!("redis-sentinel://{}{}/{MASTER_NAME}", authority(options.credentials()), addresses.join(","));
        let nodes = std::iter::once(master).chain(replicas).collect();
        let deployment = Self { url, master_name: MASTER_NAME.to_owned(), sentinels, nodes };
        deployment.until_ready().await?;
        Ok(deployment)
    }

    /// The deployment that runs at this URL, which is not ours to stop:
    /// `redis-sentinel://[user:password@]host:port[,host:port...]/master-name`.
    ///
    /// # Errors
    /// If the URL has another form, or no sentinel there knows the master.
    pub async fn existing(url: impl Into<String>) -> Result<Self, HarnessError> {
        let url = url.into();
        let ServerUrl { scheme, credentials, addresses, path } = ServerUrl::parse(&url, 26379)?;
        let master_name = path.split('/').next().unwrap_or_default().to_owned();
        if scheme != "redis-sentinel" || master_name.is_empty() {
            return Err(HarnessError::new("the URL of sentinels should read redis-sentinel://host:port/master-name"));
        }
        let sentinels = addresses.iter().map(|address| RedisServer::existing(format!("redis://{address}/")));
        let mut deployment = Self { url, master_name, sentinels: sentinels.collect(), nodes: Vec::new() };
        for address in deployment.node_addresses().await? {
            let url = format!("redis://{}{address}/", authority(credentials.as_ref()));
            deployment.nodes.push(RedisServer::existing(url));
        }
        Ok(deployment)
    }

    /// The URL that clients connect to: `redis-sentinel://[user:password@]host:port,host:port,host:port/master-name`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The name by which sentinels know the master.
    #[must_use]
    pub fn master_name(&self) -> &str {
        &self.master_name
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// Master and replicas: the first one was the master at first.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// `host:port` of the present master, as the first sentinel that answers knows it.
    ///
    /// # Errors
    /// If no sentinel knows one.
    pub async fn master_address(&self) -> Result<String, HarnessError> {
        let mut outcome = Err(HarnessError::new("no sentinel runs"));
        for sentinel in self.running() {
            outcome = self.master_according_to(sentinel).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// The present master, as the first sentinel that answers knows it.
    ///
    /// # Errors
    /// If no sentinel knows one, or it is none of the [`nodes`](SentinelDeployment::nodes).
    pub async fn master(&self) -> Result<&RedisServer, HarnessError> {
        let address = self.master_address().await?;
        let node = self.nodes.iter().find(|node| node.address() == address);
        node.ok_or_else(|| HarnessError::new(format!("the master {address} was none of the nodes before")))
    }

    /// Fails over as an operator does (`SENTINEL FAILOVER`), and waits for the new master. The old one is told after
    /// some seconds only, and takes writes until then.
    ///
    /// # Errors
    /// If no replica is fit, or there is no new master in time.
    pub async fn fail_over(&self) -> Result<&RedisServer, HarnessError> {
        let old = self.master().await?;
        let sentinel = self.running().next().ok_or_else(|| HarnessError::new("no sentinel runs"))?;
        sentinel.client()?.command(&["SENTINEL", "FAILOVER", &self.master_name]).await?;
        self.until_another_master(old).await
    }

    /// Waits until every sentinel that runs names another master than this one, and that one says so itself.
    ///
    /// # Errors
    /// If it takes too long, with what was missing in the end.
    pub async fn until_another_master(&self, old: &RedisServer) -> Result<&RedisServer, HarnessError> {
        until("another master", ms(PATIENCE), || self.another_master(old)).await
    }

    /// Waits until everybody is there and knows everybody else, so that a master may fail: all sentinels agree on the
    /// master and see each other, every replica follows it.
    ///
    /// # Errors
    /// If it takes too long, with what was missing in the end.
    pub async fn until_ready(&self) -> Result<(), HarnessError> {
        until("a complete deployment", ms(PATIENCE), || self.ready()).await
    }

    async fn another_master(&self, old: &RedisServer) -> Result<&RedisServer, HarnessError> {
        let master = self.master().await?;
        for sentinel in self.running() {
            let known = self.master_according_to(sentinel).await?;
            if known != master.address() || known == old.address() {
                return Err(HarnessError::new(format!("the sentinel {} knows {known}", sentinel.address())));
            }
        }
        match master.role().await?.as_str() {
            "master" => Ok(master),
            role => Err(HarnessError::new(format!("{} is a {role}", master.address()))),
        }
    }

    async fn ready(&self) -> Result<(), HarnessError> {
        let master = self.master().await?;
        for sentinel in &self.sentinels {
            let known = self.master_according_to(sentinel).await?;
            if known != master.address() {
                return Err(HarnessError::new(format!("the sentinel {} knows {known}", sentinel.address())));
            }
            self.ready_according_to(sentinel).await?;
        }
        for node in self.nodes.iter().filter(|node| node.address() != master.address()) {
            node.follows(master.address()).await?;
        }
        Ok(())
    }

    fn running(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running())
    }

    /// `host:port` of the master and its replicas, as the first sentinel that answers knows them.
    async fn node_addresses(&self) -> Result<Vec<String>, HarnessError> {
        let mut addresses = vec![self.master_address().await?];
        for sentinel in self.running() {
            if self.master_according_to(sentinel).await.is_err() {
                continue;
            }
            for replica in sentinel.client()?.command(&["SENTINEL", "REPLICAS", &self.master_name]).await?.into_parts()
            {
                // A sentinel's name for a server is its address.
                addresses.extend(fields(replica).into_iter().find(|(name, _)| name == "name").map(|(_, name)| name));
            }
            break;
        }
        Ok(addresses)
    }

    async fn master_according_to(&self, sentinel: &RedisServer) -> Result<String, HarnessError> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master_name];
        match sentinel.client()?.command(&command).await?.into_parts().as_slice() {
            [host, port] => Ok(format!("{host}:{port}")),
            _ => Err(HarnessError::new(format!("the sentinel {} knows no {}", sentinel.address(), self.master_name))),
        }
    }

    /// Whether this sentinel could lead a failover: it sees the other sentinels, and replicas that are fit.
    async fn ready_according_to(&self, sentinel: &RedisServer) -> Result<(), HarnessError> {
        let client = sentinel.client()?;
        client.command(&["SENTINEL", "CKQUORUM", &self.master_name]).await?;
        let master = fields(client.command(&["SENTINEL", "MASTER", &self.master_name]).await?);
        let expected = [
            ("flags", "master".to_owned()),
            ("num-other-sentinels", (self.sentinels.len() - 1).to_string()),
            ("num-slaves", (self.nodes.len() - 1).to_string()),
        ];
        for (name, value) in &expected {
            expect(sentinel, &master, name, value)?;
        }
        for replica in client.command(&["SENTINEL", "REPLICAS", &self.master_name]).await?.into_parts() {
            let replica = fields(replica);
            expect(sentinel, &replica, "flags", "slave")?;
            expect(sentinel, &replica, "master-link-status", "ok")?;
        }
        Ok(())
    }
}

/// A sentinel that watches the master on this port.
fn watching(port: &str, credentials: Option<&Credentials>) -> RedisOptions {
    let mut options = RedisOptions::sentinel()
        .with_directive("sentinel", &format!("monitor {MASTER_NAME} 127.0.0.1 {port} {QUORUM}"))
        .with_directive("sentinel", &format!("down-after-milliseconds {MASTER_NAME} {DOWN_AFTER}"))
        .with_directive("sentinel", &format!("failover-timeout {MASTER_NAME} {FAILOVER_TIMEOUT}"))
        .with_directive("sentinel", &format!("parallel-syncs {MASTER_NAME} {REPLICAS}"));
    if let Some(Credentials { user, password }) = credentials {
        options = options
            .with_directive("sentinel", &format!("auth-user {MASTER_NAME} {user}"))
            .with_directive("sentinel", &format!("auth-pass {MASTER_NAME} {password}"));
    }
    options
}

/// A sentinel's reply of names and values in turn.
fn fields(reply: Value) -> Vec<(String, String)> {
    let texts: Vec<_> = reply.into_parts().iter().map(ToString::to_string).collect();
    texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}

fn expect(sentinel: &RedisServer, fields: &[(String, String)], name: &str, value: &str) -> Result<(), HarnessError> {
    let found = fields.iter().find(|(field, _)| field == name).map(|(_, found)| found.as_str());
    if found == Some(value) {
        return Ok(());
    }
    let of = fields.first().map(|(_, name)| name.as_str()).unwrap_or_default();
    Err(HarnessError::new(format!("the sentinel {} says {name} of {of}: {found:?}", sentinel.address())))
}
