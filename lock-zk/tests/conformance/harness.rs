//! ZooKeeper for the conformance suite, however many servers there are.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Error, LockName, Locks};
use lock_testkit::faults::Proof;
use lock_testkit::proxy::Protocol;
use lock_testkit::{
    Admin, DisposableServer, DisposableServers, Foreign, GroundTruth, Harness, HarnessError, Linked, Missing,
    ServerFault, Sessions, ms,
};
use lock_testkit_servers::Deployment;
use lock_testkit_servers::faults::StoreFault;
use lock_testkit_servers::zookeeper::{NodeKind, ZooKeeperClient, ZooKeeperServer, tick_time};
use lock_zk::{ClientOptions, ZkConfig, ZkLocks};

/// A node that an operator's mistake leaves in a lock's directory.
const GARBAGE: &str = "garbage";

/// The id that a client of another library writes into its nodes' names.
const FOREIGN_UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// Servers of a suite.
#[async_trait]
pub(crate) trait Servers: Deployment {
    /// The faults of such servers if a case has them for itself.
    const FAULTS: &'static [ServerFault] = &[];

    /// Servers to which this can be done.
    async fn disposable_server(fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        Err(Missing::new(format!("no servers for a {fault:?}")))
    }
}

/// The client by which the locks of a suite come.
#[async_trait]
pub(crate) trait Client: Send + Sync + 'static {
    /// The name of the trials on these servers.
    fn name(servers: &'static str) -> &'static str {
        servers
    }

    /// Its constructor.
    async fn connect(config: ZkConfig) -> Result<ZkLocks, Error> {
        ZkLocks::connect_with(config).await
    }

    /// The part of it that is tried.
    fn offer(client: ZkLocks) -> Locks {
        client.into()
    }

    /// Cases that it cannot meet, and why.
    fn exclusions() -> &'static [(&'static str, &'static str)] {
        &[FOREIGN_STARVATION]
    }

    /// Panics that its crate may have when its runtime ends, and why.
    fn panics_at_the_end() -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// The client as it comes.
pub(crate) struct Usual;

impl Client for Usual {}

/// Does not apply to ZooKeeper at all.
pub(crate) const FOREIGN_STARVATION: (&str, &str) =
    ("C-I04", "clients of other libraries wait in the same queue; the case's client only tries");

pub(crate) struct ZooKeeper<D, C = Usual> {
    url: String,
    /// The servers' `tickTime`.
    tick: Duration,
    /// `None` in a child process, which owns no server.
    _servers: Option<D>,
    _client: PhantomData<C>,
    /// The sessions of foreign holders, by the key that each holds.
    foreign: Mutex<HashMap<String, ZooKeeperClient>>,
}

#[async_trait]
impl<D: Servers, C: Client> Harness for ZooKeeper<D, C> {
    fn name(&self) -> &'static str {
        C::name(D::NAME)
    }

    async fn start() -> Result<Self, Missing> {
        let servers = D::start().await?;
        let (url, tick) = (servers.url().to_owned(), tick_time(false)?);
        Ok(Self { url, tick, _servers: Some(servers), _client: PhantomData, foreign: Mutex::default() })
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        let (url, tick) = (endpoint.to_owned(), tick_time(false)?);
        Ok(Self { url, tick, _servers: None, _client: PhantomData, foreign: Mutex::default() })
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.url.clone())
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect::<C>(&self.url, namespace, self.tick).await
    }

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
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

    fn sessions(&self) -> Option<&dyn Sessions> {
        Some(self)
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

    /// Until its session ends; the server looks for dead sessions once a tick.
    fn kept_for(&self, _: Duration) -> Duration {
        session(8000, self.tick) + self.tick
    }

    fn exclusions(&self) -> &'static [(&'static str, &'static str)] {
        C::exclusions()
    }

    fn panics_at_the_end(&self) -> &'static [(&'static str, &'static str)] {
        C::panics_at_the_end()
    }
}

async fn connect<C: Client>(url: &str, namespace: &str, tick: Duration) -> Result<Locks, Error> {
    let config = ZkConfig::new(url).with_prefix(namespace);
    let config = config.with_session_timeout(session(8000, tick)).with_tick_time(tick);
    // A server that is slow because everything is shall not fail the others.
    let mut options = ClientOptions::default();
    options.op_timeout = ms(6000);
    // A process that stands still until its session has ended waits on.
    options.patience += (session(8000, tick) - ms(8000)) * 2;
    Ok(C::offer(C::connect(config.with_client(options)).await?))
}

#[async_trait]
impl<D: Servers, C: Client> DisposableServers for ZooKeeper<D, C> {
    fn faults(&self) -> &'static [ServerFault] {
        D::FAULTS
    }

    async fn start(&self, fault: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        D::disposable_server(fault).await
    }

    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        connect::<C>(server.url(), namespace, self.tick).await
    }
}

/// The session of a client that has so many milliseconds at servers of our own. Where ticks are longer it is longer, too, so that as much of it is
/// believed in. One of 8 s outlives the seconds in which a busy machine runs no server, and lets the longest lease of a case be promised as a whole.
fn session(milliseconds: u64, tick: Duration) -> Duration {
    // A tick and a fifth of the session are not believed in.
    ms(milliseconds) + tick.saturating_sub(Duration::from_millis(200)) * 5 / 4
}

#[async_trait]
impl<D: Servers, C: Client> Linked for ZooKeeper<D, C> {
    fn protocol(&self) -> Protocol {
        Protocol::ZooKeeper
    }

    fn servers(&self) -> Vec<String> {
        hosts_in(&self.url).split(',').map(str::to_owned).collect()
    }

    /// A session as long as the leases of the cases: what they take away, others shall have soon.
    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        let config = ZkConfig::new(self.url.replace(hosts_in(&self.url), &addresses.join(","))).with_prefix(namespace);
        let config = config.with_session_timeout(session(2000, self.tick)).with_tick_time(self.tick);
        Ok(C::offer(C::connect(config).await?))
    }

    /// That the client has no right (`NoAuth`), and that the server has too much to do (`Throttled`).
    fn refusals(&self) -> &'static [&'static str] {
        &["-102", "-127"]
    }
}

/// The servers in a URL, `host:port` each, separated by commas.
fn hosts_in(url: &str) -> &str {
    let authority = url.split('/').nth(2).unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

#[async_trait]
impl<D: Servers, C: Client> GroundTruth for ZooKeeper<D, C> {
    /// Every node but the directories, which are containers: the server removes them some time after their last child.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let client = ZooKeeperClient::connect(&self.url).await?;
        let nodes = client.descendants(&format!("/{namespace}")).await?;
        client.close().await?;
        Ok(nodes.into_iter().filter(|path| !is_directory(path)).collect())
    }
}

#[async_trait]
impl<D: Servers, C: Client> Sessions for ZooKeeper<D, C> {
    async fn present(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let client = ZooKeeperClient::connect(&self.url).await?;
        let sessions = client.sessions_below(&format!("/{namespace}")).await?;
        client.close().await?;
        Ok(sessions.iter().map(ToString::to_string).collect())
    }

    async fn end(&self, session: &str) -> Result<Proof, HarnessError> {
        let fault = StoreFault::StealSession { session: session.parse()? };
        Ok(fault.inject(&ZooKeeperServer::existing(self.url.as_str())).await?.proof())
    }
}

/// `/<namespace>/<kind>`, `/<namespace>/<kind>/<name>`, a semaphore's `locks` and `leases`, and `/<namespace>/forced` are.
fn is_directory(path: &str) -> bool {
    match path.split('/').skip(2).collect::<Vec<_>>()[..] {
        ["forced", _] => false,
        ["semaphore", _, "locks" | "leases"] => true,
        ref parts => parts.len() < 3,
    }
}

#[async_trait]
impl<D: Servers, C: Client> Admin for ZooKeeper<D, C> {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        let client = ZooKeeperClient::connect(&self.url).await?;
        for directory in directories(namespace, name) {
            let mut nodes = client.children(&directory).await?.unwrap_or_default();
            // Garbage has no number; among the others, the lowest is the holder's.
            nodes.sort_by_key(|node| (node != GARBAGE, number(node).to_owned()));
            if let Some(first) = nodes.first() {
                client.delete(&format!("{directory}/{first}")).await?;
            }
        }
        client.close().await
    }

    fn takes_garbage(&self) -> bool {
        true
    }

    async fn put_garbage(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        let client = ZooKeeperClient::connect(&self.url).await?;
        for directory in directories(namespace, name) {
            client.create_all(&directory).await?;
            client.create(&format!("{directory}/{GARBAGE}"), b"", NodeKind::Persistent).await?;
        }
        client.close().await?;
        Ok(())
    }
}

/// As Curator's `InterProcessMutex` lays it out. Each holder has a session of its own.
#[async_trait]
impl<D: Servers, C: Client> Foreign for ZooKeeper<D, C> {
    async fn try_hold(&self, key: &str, _ttl: Duration) -> Result<bool, HarnessError> {
        let client = ZooKeeperClient::connect(&self.url).await?;
        client.create(&format!("/{key}"), b"", NodeKind::Container).await?;
        let stem = format!("/{key}/_c_{FOREIGN_UUID}-lock-");
        let mine = client.create(&stem, b"10.0.0.1", NodeKind::EphemeralSequential).await?;
        let mine = mine.ok_or_else(|| HarnessError::new("a sequential node was there already"))?;
        let line = client.children(&format!("/{key}")).await?.unwrap_or_default();
        let first = line.iter().min_by_key(|name| number(name).to_owned());
        if !first.is_some_and(|first| mine.ends_with(first.as_str())) {
            client.close().await?;
            return Ok(false);
        }
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), client);
        Ok(true)
    }

    async fn release(&self, key: &str) -> Result<bool, HarnessError> {
        let client = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let Some(client) = client else { return Ok(false) };
        let line = client.children(&format!("/{key}")).await?.unwrap_or_default();
        let first = line.iter().min_by_key(|name| number(name).to_owned());
        let was_first = first.is_some_and(|first| first.contains(FOREIGN_UUID));
        client.close().await?;
        Ok(was_first)
    }
}

/// The number at the end of a node's name.
fn number(name: &str) -> &str {
    &name[name.len().saturating_sub(10)..]
}

/// The documented mapping for every kind, for names of letters, digits, `-`, `_` and `/`.
fn directories(namespace: &str, name: &LockName) -> [String; 4] {
    let name = name.as_str().replace('/', "%2F");
    ["mutex", "reentrant", "rwlock", "semaphore"].map(|kind| match kind {
        "semaphore" => format!("/{namespace}/{kind}/{name}/leases"),
        _ => format!("/{namespace}/{kind}/{name}"),
    })
}
