//! The four kinds of lock, for lock-core. They differ by the mode of a request alone
//! ([`call::mode`](crate::store::call::mode)).

use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{
    AdoptBackend, Attempt, Grant, Kind, MutexBackend, Record, RecordBackend, RecordWrite, ReentrantBackend,
    RwLockBackend, SemaphoreBackend,
};
use lock_core::{Error, FencingToken, GrantId, LockName, Phase};

use crate::backend::RedisBackend;
use crate::store::call::permits_mode;

#[async_trait]
impl MutexBackend for RedisBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }
}

/// Exclusion between owners, whatever the client through which they come.
#[async_trait]
impl ReentrantBackend for RedisBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }
}

/// Fair by arrival; readers in front are admitted together.
#[async_trait]
impl RwLockBackend for RedisBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.releaser.change_mode(attempt, "R", Phase::Downgrade).await
    }
}

/// All or nothing; first come, first served.
#[async_trait]
impl SemaphoreBackend for RedisBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let limit = match attempt.kind {
            Kind::Permits { limit, .. } => limit,
            // Not a semaphore's attempt: the server has no such grant, and says so.
            _ => keep,
        };
        self.releaser.change_mode(attempt, &permits_mode(keep, limit), Phase::Release).await
    }

    async fn permits_held(&self, name: &LockName, limit: u32) -> Result<u64, Error> {
        self.inspector.permits_held(name, limit).await
    }
}

/// A mutex goes on under another nonce.
#[async_trait]
impl AdoptBackend for RedisBackend {
    async fn adopt(
        &self,
        attempt: &Attempt,
        from: GrantId,
        _token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error> {
        self.adopter.adopt(attempt, from).await
    }
}

/// The records beside mutexes.
#[async_trait]
impl RecordBackend for RedisBackend {
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
