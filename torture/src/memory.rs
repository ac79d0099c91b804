//! The backend in memory: clients of one store in this process.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{Error, Locks};
use lock_testkit::HarnessError;
use tokio::sync::OnceCell;

use crate::faults::Fault;
use crate::system::SystemUnderTest;

/// One store.
pub(crate) struct Memory {
    store: MemoryStore,
    /// Looks at what it has.
    eyes: OnceCell<Locks>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::new(), eyes: OnceCell::new() }
    }
}

#[async_trait]
impl SystemUnderTest for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn url(&self) -> String {
        "memory:".to_owned()
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        let mut config = MemoryConfig::default();
        config.namespace = namespace.to_owned();
        Ok(self.store.connect_with(config)?.into())
    }

    fn has_processes(&self) -> bool {
        false
    }

    fn faults(&self, seed: u64) -> Vec<Box<dyn Fault>> {
        vec![Box::new(Unreachable(self.store.clone())), Box::new(Slow(self.store.clone(), seed))]
    }

    async fn holder(&self, namespace: &str, mutex: &str) -> Option<Option<String>> {
        let eyes = self.eyes.get_or_try_init(|| self.connect(namespace)).await.ok()?;
        let seen = eyes.mutex(mutex).inspect().await.ok()?;
        Some(seen.holders.first().and_then(|holder| holder.grant).map(|grant| grant.to_string()))
    }

    async fn residue(&self, _namespace: &str) -> Option<Result<Vec<String>, HarnessError>> {
        let used = self.store.used();
        Some(Ok(if used == 0 { Vec::new() } else { vec![format!("{used} locks in use")] }))
    }
}

/// Every request fails.
struct Unreachable(MemoryStore);

#[async_trait]
impl Fault for Unreachable {
    fn name(&self) -> &'static str {
        "unreachable"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        self.0.set_reachable(false);
        let refused = self.0.connect().mutex("proof").try_lock().await;
        Ok(refused.err().map(|error| error.to_string()))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        self.0.set_reachable(true);
        Ok(())
    }
}

/// Every request takes up to 300 ms, by the chance of this seed.
struct Slow(MemoryStore, u64);

#[async_trait]
impl Fault for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    async fn begin(&mut self) -> Result<Option<String>, HarnessError> {
        self.0.set_delay(Duration::from_millis(50), Duration::from_millis(300), self.1);
        let began = std::time::Instant::now();
        drop(self.0.connect().mutex("proof").try_lock().await?);
        let took = began.elapsed();
        Ok((took >= Duration::from_millis(50)).then(|| format!("a request took {took:.0?}")))
    }

    async fn heal(&mut self) -> Result<(), HarnessError> {
        self.0.set_delay(Duration::ZERO, Duration::ZERO, 1);
        Ok(())
    }
}
