//! The memory backend's conformance: the executable specification passes every case that one process can run.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use lock_core::memory::{MemoryConfig, MemoryStore};
use lock_core::{Error, LockName, Locks};
use lock_testkit::{Admin, GroundTruth, Harness, HarnessError, Missing};

/// One store for every case, so that ground truth can tell the cases apart.
struct Memory {
    stores: Mutex<HashMap<String, MemoryStore>>,
}

impl Memory {
    /// The store of a case. Namespaces that a case derives from its own one (`case/other`) share its store, and are kept
    /// apart by the backend.
    fn store(&self, namespace: &str) -> MemoryStore {
        let case = namespace.split('/').next().unwrap_or(namespace);
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.entry(case.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Harness for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn start() -> Result<Self, Missing> {
        Ok(Self { stores: Mutex::default() })
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        let mut config = MemoryConfig::default();
        config.namespace = namespace.to_owned();
        Ok(self.store(namespace).connect_with(config)?.into())
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    fn expected_ignored(&self) -> Option<PathBuf> {
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/memory.ignored").into())
    }
}

#[async_trait]
impl GroundTruth for Memory {
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        Ok((0..self.store(namespace).used()).map(|_| "a lock with a holder or a waiter".to_owned()).collect())
    }
}

#[async_trait]
impl Admin for Memory {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        self.store(namespace).lose(name);
        Ok(())
    }
}

fn main() -> ExitCode {
    lock_testkit::main::<Memory>()
}
