//! Faults of what servers store. They happen at once, and nothing heals them.

use lock_testkit::HarnessError;
use lock_testkit_proxy::{Effect, Injected, Proof};
use serde::{Deserialize, Serialize};

use crate::memcached::{Memcached, MemcachedServer};
use crate::redis::{ClusterDeployment, RedisServer, SentinelDeployment};
use crate::resp::Resp;
use crate::until::promptly;
use crate::until::until;
use crate::zookeeper::ZooKeeperServer;

/// Something that happens to what servers store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StoreFault {
    /// A Redis server forgets its scripts (`SCRIPT FLUSH`).
    ForgetScripts,
    /// A Redis server forgets everything else (`FLUSHALL`); a memcached server forgets everything (`flush_all`).
    Flush,
    /// A Redis server that evicts what is used least, or a memcached server, runs out of memory, until these keys are gone.
    Evict {
        /// The keys, which have to be there.
        keys: Vec<String>,
    },
    /// Another server takes over, as an operator would have it: from the master behind sentinels, or from that of slot 0
    /// of a cluster.
    FailOver,
    /// Somebody takes over a session and ends it, which to its client is as if it had expired.
    StealSession {
        /// The session's id.
        session: i64,
    },
}

/// A server with its store, for [`StoreFault::inject`]: made of a reference to it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Store<'a> {
    /// A Redis server's.
    Redis(&'a RedisServer),
    /// A memcached server's.
    Memcached(&'a MemcachedServer),
    /// A master's and its replicas'.
    Sentinel(&'a SentinelDeployment),
    /// A cluster's.
    Cluster(&'a ClusterDeployment),
    /// A ZooKeeper server's, or its ensemble's.
    ZooKeeper(&'a ZooKeeperServer),
}

impl StoreFault {
    /// Injects this fault.
    ///
    /// # Errors
    /// If such a thing cannot happen to this store, or a server refuses.
    pub async fn inject<'a>(self, store: impl Into<Store<'a>>) -> Result<Injected<'static>, HarnessError> {
        let proof = match (&self, store.into()) {
            (Self::ForgetScripts, Store::Redis(server)) => forget_scripts(&server.client()?).await?,
            (Self::Flush, Store::Redis(server)) => flush(&server.client()?).await?,
            (Self::Evict { keys }, Store::Redis(server)) => evict(&server.client()?, keys).await?,
            (Self::Flush, Store::Memcached(server)) => flush_items(&server.client()).await?,
            (Self::Evict { keys }, Store::Memcached(server)) => evict_items(&server.client(), keys).await?,
            (Self::FailOver, Store::Sentinel(deployment)) => {
                let old = deployment.master_address().await?;
                moved(&old, deployment.fail_over().await?.address())
            }
            (Self::FailOver, Store::Cluster(deployment)) => {
                let old = deployment.master_of(0).await?.address();
                moved(old, deployment.fail_over(0).await?.address())
            }
            (Self::StealSession { session }, Store::ZooKeeper(server)) => steal(server, *session).await?,
            (fault, store) => return Err(HarnessError::new(format!("{fault:?} cannot happen to {store:?}"))),
        };
        Ok(Injected::new(format!("{self:?}"), Done(proof.unwrap_or_default())))
    }
}

/// The effect of a fault that cannot be healed.
struct Done(Proof);

impl Effect for Done {
    fn proof(&self) -> Proof {
        self.0.clone()
    }

    fn heal(&mut self) {}
}

async fn forget_scripts(redis: &Resp) -> Result<Option<Proof>, HarnessError> {
    let digest = redis.command(&["SCRIPT", "LOAD", "return 'it is known'"]).await?.to_string();
    redis.command(&["SCRIPT", "FLUSH"]).await?;
    let known = redis.command(&["SCRIPT", "EXISTS", &digest]).await?.into_parts();
    let is_forgotten = known.first().and_then(|known| known.as_int()) == Some(0);
    Ok(is_forgotten.then(|| Proof::of("a script that was known is known no more")))
}

async fn flush(redis: &Resp) -> Result<Option<Proof>, HarnessError> {
    let keys = redis.command(&["DBSIZE"]).await?.as_int().unwrap_or_default();
    redis.command(&["FLUSHALL"]).await?;
    Ok((keys > 0).then(|| Proof::of(format!("{keys} keys were forgotten"))))
}

/// Fills the memory with keys of its own.
async fn evict(redis: &Resp, keys: &[String]) -> Result<Option<Proof>, HarnessError> {
    /// Enough for any server that is meant to run out of memory.
    const MOST: usize = 20_000;
    let garbage = "x".repeat(20_000);
    if present(redis, keys).await? != keys.len() {
        return Err(HarnessError::new(format!("not all of {keys:?} are there to be evicted")));
    }
    for number in 0..MOST {
        redis.command(&["SET", &format!("garbage:{number}"), &garbage]).await?;
        if number % 20 == 0 && present(redis, keys).await? == 0 {
            return Ok(Some(Proof::of(format!("{} keys were evicted", keys.len()))));
        }
    }
    Ok(None)
}

async fn present(redis: &Resp, keys: &[String]) -> Result<usize, HarnessError> {
    let question: Vec<_> = ["EXISTS"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    Ok(usize::try_from(redis.command(&question).await?.as_int().unwrap_or_default())?)
}

async fn flush_items(memcached: &Memcached) -> Result<Option<Proof>, HarnessError> {
    let items = memcached.items().await?.len();
    memcached.flush_all().await?;
    Ok((items > 0).then(|| Proof::of(format!("{items} items were forgotten"))))
}

/// Fills the memory with items as small as a lock's: each size has a part of it for itself.
async fn evict_items(memcached: &Memcached, keys: &[String]) -> Result<Option<Proof>, HarnessError> {
    /// Batches of a thousand: enough for a server with 2 MB.
    const MOST: usize = 300;
    // Listed and not read: what is read counts as used.
    let present = async || -> Result<usize, HarnessError> {
        Ok(memcached.items().await?.iter().filter(|item| keys.contains(&item.key)).count())
    };
    if present().await? != keys.len() {
        return Err(HarnessError::new(format!("not all of {keys:?} are there to be evicted")));
    }
    for batch in 0..MOST {
        let set = |i| format!("set garbage:{batch:03}:{i:03} 0 0 19 noreply\r\n1000000000000000001\r\n");
        let sets: String = (0..1_000).map(set).collect();
        memcached.command(&format!("{sets}mn")).await?;
        if batch % 10 == 9 && present().await? == 0 {
            return Ok(Some(Proof::of(format!("{} items were evicted", keys.len()))));
        }
    }
    Ok(None)
}

fn moved(old: &str, new: &str) -> Option<Proof> {
    (old != new).then(|| Proof::of(format!("{new} has taken over from {old}")))
}

async fn steal(server: &ZooKeeperServer, session: i64) -> Result<Option<Proof>, HarnessError> {
    let ended = server.expire(session).await;
    if is_over(&ended) {
        return ended.map(|()| None); // there was no such session
    }
    // Its client takes it back at once, so that a thief may have to try again. Who is gone cannot be taken over any more.
    let gone = || async {
        let again = server.expire(session).await;
        if is_over(&again) { Ok(()) } else { again.and(Err(HarnessError::new("its client has it still"))) }
    };
    until("the session is over", promptly(), gone).await?;
    Ok(Some(Proof::of(format!("the session {session:#x} is over"))))
}

/// Whether there is no session of this id.
fn is_over(refused: &Result<(), HarnessError>) -> bool {
    refused.as_ref().is_err_and(|refusal| refusal.to_string().contains("SessionExpired"))
}

impl<'a> From<&'a RedisServer> for Store<'a> {
    fn from(server: &'a RedisServer) -> Self {
        Self::Redis(server)
    }
}

impl<'a> From<&'a MemcachedServer> for Store<'a> {
    fn from(server: &'a MemcachedServer) -> Self {
        Self::Memcached(server)
    }
}

impl<'a> From<&'a SentinelDeployment> for Store<'a> {
    fn from(deployment: &'a SentinelDeployment) -> Self {
        Self::Sentinel(deployment)
    }
}

impl<'a> From<&'a ClusterDeployment> for Store<'a> {
    fn from(deployment: &'a ClusterDeployment) -> Self {
        Self::Cluster(deployment)
    }
}

impl<'a> From<&'a ZooKeeperServer> for Store<'a> {
    fn from(server: &'a ZooKeeperServer) -> Self {
        Self::ZooKeeper(server)
    }
}
