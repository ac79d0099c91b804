//! The kinds of locks, and where they differ: the keys they have, and the order in which those are taken.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{
    AdoptBackend, Attempt, Grant, MutexBackend, Record, RecordBackend, RecordWrite, ReentrantBackend, RwLockBackend,
    SemaphoreBackend,
};
use lock_core::{Error, FencingToken, GrantId, LockName};

use crate::acquire::{Acquirer, TryOutcome, WantedLock};
use crate::backend::MemcachedBackend;
use crate::registry::Entry;
use crate::store::keys::Key;

#[async_trait]
impl MutexBackend for MemcachedBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&Single::new(&self.acquirer, attempt)?, attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.wait(&Single::new(&self.acquirer, attempt)?, attempt, deadline).await
    }
}

#[async_trait]
impl AdoptBackend for MemcachedBackend {
    async fn adopt(
        &self,
        attempt: &Attempt,
        from: GrantId,
        token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error> {
        self.adopter.adopt(attempt, from, token).await
    }
}

/// The core counts the depth, so that a client asks once for each owner; two clients with one owner exclude each other.
#[async_trait]
impl ReentrantBackend for MemcachedBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&Single::new(&self.acquirer, attempt)?, attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.wait(&Single::new(&self.acquirer, attempt)?, attempt, deadline).await
    }
}

#[async_trait]
impl RwLockBackend for MemcachedBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&self.rwlocks.reader(attempt)?, attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&self.rwlocks.writer(attempt, false)?, attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.wait(&self.rwlocks.reader(attempt)?, attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.wait(&self.rwlocks.writer(attempt, true)?, attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.rwlocks.downgrade(attempt).await
    }
}

#[async_trait]
impl SemaphoreBackend for MemcachedBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&self.semaphores.permits(attempt)?, attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.wait(&self.semaphores.permits(attempt)?, attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        self.semaphores.shrink(attempt, keep).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.inspector.permits_held(name, limit).await
    }
}

/// A lock of one key, wanted by one attempt: a mutex or a reentrant lock.
struct Single<'a> {
    acquirer: &'a Arc<Acquirer>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
}

impl<'a> Single<'a> {
    fn new(acquirer: &'a Arc<Acquirer>, attempt: &'a Attempt) -> Result<Self, Error> {
        Ok(Self { acquirer, attempt, entry: acquirer.register(attempt)? })
    }
}

impl WantedLock for Single<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        self.acquirer.is_free(self.attempt, &self.entry.lock).await
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let (acquirer, attempt, entry) = (self.acquirer, self.attempt, &self.entry);
        let round = acquirer.claim(attempt, entry, vec![entry.lock.clone()], Vec::new()).await?;
        acquirer.settle(attempt, entry, &round, entry.has_pieces()).await
    }

    fn queue(&self) -> Key {
        self.entry.lock.clone()
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        true
    }
}

/// The records beside mutexes.
#[async_trait]
impl RecordBackend for MemcachedBackend {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.records.read(name).await
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
