//! The four kinds of lock, for lock-core, and the records beside mutexes. The kinds differ by their directories and nodes
//! ([`LockPaths::of`](crate::store::layout::LockPaths::of)), and by who is waited for ([`contention`](crate::wait::contention)); a semaphore also
//! by its [`permits`](crate::permits).

use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{
    Attempt, Grant, MutexBackend, Record, RecordBackend, RecordWrite, ReentrantBackend, RwLockBackend, SemaphoreBackend,
};
use lock_core::{Error, FencingToken, LockName};

use crate::backend::ZkBackend;

/// The mutex, in the layout of Curator's `InterProcessMutex`.
#[async_trait]
impl MutexBackend for ZkBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.acquire(attempt, deadline).await
    }
}

/// The reentrant lock: the core counts how often an owner has entered, the servers see one holder.
#[async_trait]
impl ReentrantBackend for ZkBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.acquire(attempt, deadline).await
    }
}

/// The read-write lock, in the layout of Curator's `InterProcessReadWriteLock`: readers and writers in one queue, in which
/// a reader waits for the writers before it only.
#[async_trait]
impl RwLockBackend for ZkBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.acquire(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.acquirer.acquire(attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.downgrader.downgrade(attempt).await
    }
}

/// The semaphore, in the layout of Curator's `InterProcessSemaphoreV2`: all or nothing, first come, first served.
#[async_trait]
impl SemaphoreBackend for ZkBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.permits.try_acquire(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.permits.acquire(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        self.releaser.shrink(attempt, keep).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.inspector.permits_held(name, limit).await
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
