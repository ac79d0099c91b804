//! The harness of the conformance suite for memcached, whoever provides the server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{ClientOptions, Error, GrantId, LockName, Locks};
use lock_memcached::{MemcachedConfig, MemcachedLocks, RestartPolicy};
use lock_testkit::proxy::Protocol;
use lock_testkit::{
    Admin, DisposableServer, DisposableServers, Foreign, GroundTruth, Harness, HarnessError, Linked, Missing,
    ServerFault, ms,
};
use lock_testkit_servers::Deployment;
use lock_testkit_servers::memcached::{Memcached, MemcachedServer};

/// The longest lease in the suite.
fn longest_lease() -> Duration {
    ms(20_000)
}

/// A server, and another one for a case that wants to do something to it.
#[async_trait]
pub(crate) trait Arrangement: Deployment {
    const FAULTS: &'static [ServerFault] = &[];

    async fn disposable_server() -> Result<Box<dyn DisposableServer>, Missing> {
        Err(Missing::new("no server that a case may have for itself"))
    }
}

pub(crate) struct Memcache<D> {
    /// The server, which is not this one's to stop.
    server: MemcachedServer,
    /// `None` in a child process, which owns no server.
    _owned: Option<D>,
    /// Values that the foreign client has stored, by key.
    foreign: Mutex<HashMap<String, String>>,
}

impl<D: Arrangement> Memcache<D> {
    fn at(url: &str, owned: Option<D>) -> Result<Self, HarnessError> {
        Ok(Self { server: MemcachedServer::existing(url)?, _owned: owned, foreign: Mutex::default() })
    }

    fn client(&self) -> Memcached {
        self.server.client()
    }

    /// Every case has a prefix of its own, none of which is to be in quarantine: that ends early on a server that has
    /// been up for long, as one is that was there before (`LOCK_TESTKIT_MEMCACHED_URL`, as in `scripts/test`).
    async fn until_long_up(&self) -> Result<(), HarnessError> {
        let enough = longest_lease() + Duration::from_secs(5);
        loop {
            let uptime = self.client().stats("").await?.get("uptime").and_then(|uptime| uptime.parse().ok());
            let missing = enough.saturating_sub(Duration::from_secs(uptime.unwrap_or_default()));
            if missing.is_zero() {
                return Ok(());
            }
            tokio::time::sleep(missing).await;
        }
    }
}

#[async_trait]
impl<D: Arrangement> Harness for Memcache<D> {
    fn name(&self) -> &'static str {
        D::NAME
    }

    async fn start() -> Result<Self, Missing> {
        let server = D::start().await?;
        let url = server.url().to_owned();
        let harness = Self::at(&url, Some(server))?;
        harness.until_long_up().await?;
        Ok(harness)
    }

    async fn attach(endpoint: &str) -> Result<Self, Missing> {
        Ok(Self::at(endpoint, None)?)
    }

    fn endpoint(&self) -> Option<String> {
        Some(self.server.url().to_owned())
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect(self.server.url(), namespace, longest_lease()).await
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn expected_ignored(&self) -> Option<PathBuf> {
        let name = format!("{}.ignored", self.name().replace(' ', "-"));
        Some(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance").join(name))
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn linked(&self) -> Option<&dyn Linked> {
        Some(self)
    }

    fn disposable_servers(&self) -> Option<&dyn DisposableServers> {
        Some(self)
    }

    /// Five seconds of margin, and one for the rounding to whole seconds.
    fn kept_for(&self, ttl: Duration) -> Duration {
        ttl + Duration::from_secs(6)
    }

    fn most_permits(&self) -> u32 {
        1000
    }
}

async fn connect(url: &str, namespace: &str, longest_lease: Duration) -> Result<Locks, Error> {
    let mut client = ClientOptions::default();
    client.lease.ttl = client.lease.ttl.min(longest_lease);
    let config = MemcachedConfig::new(url)
        .with_prefix(namespace)
        .with_client(client)
        .with_longest_lease(longest_lease)
        .with_restart_policy(RestartPolicy::EndEarly);
    Ok(MemcachedLocks::connect_with(config).await?.into())
}

#[async_trait]
impl<D: Arrangement> Linked for Memcache<D> {
    fn protocol(&self) -> Protocol {
        Protocol::Memcached
    }

    fn servers(&self) -> Vec<String> {
        vec![self.server.address().to_owned()]
    }

    async fn connect_at(&self, namespace: &str, addresses: &[String]) -> Result<Locks, Error> {
        connect(&format!("memcached://{}/", addresses.concat()), namespace, longest_lease()).await
    }

    fn refusals(&self) -> &'static [&'static str] {
        &["SERVER_ERROR out of memory storing object"]
    }
}

#[async_trait]
impl<D: Arrangement> DisposableServers for Memcache<D> {
    fn faults(&self) -> &'static [ServerFault] {
        D::FAULTS
    }

    async fn start(&self, _: ServerFault) -> Result<Box<dyn DisposableServer>, Missing> {
        D::disposable_server().await
    }

    /// With leases no longer than the cases': nobody is granted a lock for that long when the server has forgotten them.
    async fn connect_to(&self, server: &dyn DisposableServer, namespace: &str) -> Result<Locks, Error> {
        connect(server.url(), namespace, ms(2000)).await
    }
}

#[async_trait]
impl<D: Arrangement> GroundTruth for Memcache<D> {
    /// Every item, but for the epoch, the limits of semaphores, which outlive their permits, the room for readers, and what
    /// only tells of holders.
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        let prefix = format!("{namespace}:");
        let kept = |key: &str| {
            let rest = key.strip_prefix(&prefix).unwrap_or_default();
            matches!(rest, "epoch" | "readers")
                || rest.ends_with(":limit")
                || rest.starts_with("holder:")
                || rest.starts_with("forced:")
        };
        let items = self.client().items().await?.into_iter().map(|item| item.key);
        Ok(items.filter(|key| key.starts_with(&prefix) && !kept(key)).collect())
    }
}

#[async_trait]
impl<D: Arrangement> Admin for Memcache<D> {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        let stems = ["mutex", "reentrant", "rwlock", "semaphore"].map(|kind| format!("{namespace}:{kind}:{name}"));
        for stem in stems {
            for ending in ["", ":w", ":0", ":1", ":2"] {
                self.client().delete(&format!("{stem}{ending}")).await?;
            }
        }
        Ok(())
    }
}

/// As pymemcache's users do it: `add`, and `gets` with a `cas` that ends the item at once.
#[async_trait]
impl<D: Arrangement> Foreign for Memcache<D> {
    async fn try_hold(&self, key: &str, ttl: Duration) -> Result<bool, HarnessError> {
        let token = GrantId::random()?.to_string();
        let taken = self.client().add(key, &token, ttl.as_secs() + 1).await?;
        if taken {
            self.foreign.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), token);
        }
        Ok(taken)
    }

    async fn release(&self, key: &str) -> Result<bool, HarnessError> {
        let token = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default();
        match self.client().gets(key).await? {
            Some((value, unique)) if value == token.as_bytes() => self.client().cas(key, "", -1, unique).await,
            _ => Ok(false),
        }
    }
}
