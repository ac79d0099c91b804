//! The kinds of locks: the traits of lock-core, and what differs between them.
//!
//! The mutex and the reentrant lock differ by their directories only. [`rwlock`] has the downgrade, [`semaphore`] the release of
//! some of the permits.

mod rwlock;
mod semaphore;

use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, MutexBackend, Record, RecordBackend, RecordWrite, ReentrantBackend};
use lock_core::{Error, FencingToken, LockName};

use crate::backend::ZkBackend;

/// The mutex, in the layout of Curator's `InterProcessMutex`.
#[async_trait]
impl MutexBackend for ZkBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.wait(attempt, deadline).await
    }
}

/// The reentrant lock: the core counts how often an owner has entered, the servers see one holder.
#[async_trait]
impl ReentrantBackend for ZkBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.wait(attempt, deadline).await
    }
}

/// The records beside mutexes.
#[async_trait]
impl RecordBackend for ZkBackend {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.records.read(name, false).await
    }

    async fn peek_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.records.read(name, true).await
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        self.records.write(attempt, token, data, retention).await
    }
}
