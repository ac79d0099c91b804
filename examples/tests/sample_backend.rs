//! The sample backend of `docs/writing-a-backend.md` under the conformance suite.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use examples::sample_backend::{Shelf, connect, erase};
use lock_core::driver::async_trait;
use lock_core::{ClientOptions, Error, LockName, Locks};
use lock_testkit::{Admin, GroundTruth, Harness, HarnessError, Missing};

/// One shelf for each namespace.
#[derive(Default)]
struct Shelves(Mutex<HashMap<String, Shelf>>);

impl Shelves {
    fn of(&self, namespace: &str) -> Shelf {
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelves.entry(namespace.to_owned()).or_default().clone()
    }
}

#[async_trait]
impl Harness for Shelves {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn start() -> Result<Self, Missing> {
        Ok(Self::default())
    }

    async fn connect(&self, namespace: &str) -> Result<Locks, Error> {
        connect(&self.of(namespace), ClientOptions::default()).map(|client| erase(&client))
    }

    fn ground_truth(&self) -> Option<&dyn GroundTruth> {
        Some(self)
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }
}

#[async_trait]
impl GroundTruth for Shelves {
    async fn residue(&self, namespace: &str) -> Result<Vec<String>, HarnessError> {
        Ok(self.of(namespace).keys())
    }
}

#[async_trait]
impl Admin for Shelves {
    async fn delete_entry(&self, namespace: &str, name: &LockName) -> Result<(), HarnessError> {
        self.of(namespace).delete(&format!("lock:mutex:{name}"));
        Ok(())
    }
}

fn main() -> ExitCode {
    lock_testkit::main::<Shelves>()
}
