//! The kinds of lock over the line, and the records.

use std::time::Duration;

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{
    Attempt, Grant, MutexBackend, Record, RecordBackend, RecordWrite, ReentrantBackend, RwLockBackend,
    SemaphoreBackend, wait,
};
use lock_core::{Error, FencingToken, LockName, Phase};

use super::Faulty;

#[async_trait]
impl MutexBackend for Faulty {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_lock", attempt, attempt.op_timeout, self.inner().try_lock(attempt)).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        if self.line.state().polls {
            return wait::poll(&self.clock, attempt, deadline, || self.try_lock(attempt)).await;
        }
        self.take("lock", attempt, self.patience(attempt, deadline), self.inner().lock(attempt, deadline)).await
    }
}

#[async_trait]
impl RecordBackend for Faulty {
    async fn read_record(&self, name: &LockName) -> Result<Option<Record>, Error> {
        self.inner().read_record(name).await
    }

    async fn write_record(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let written = self.inner().write_record(attempt, token, data, retention);
        self.carry("write_record", attempt, Phase::Hold, attempt.op_timeout, written).await
    }
}

#[async_trait]
impl ReentrantBackend for Faulty {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_enter", attempt, attempt.op_timeout, self.inner().try_enter(attempt)).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        if self.line.state().polls {
            return wait::poll(&self.clock, attempt, deadline, || self.try_enter(attempt)).await;
        }
        self.take("enter", attempt, self.patience(attempt, deadline), self.inner().enter(attempt, deadline)).await
    }
}

#[async_trait]
impl SemaphoreBackend for Faulty {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_acquire", attempt, attempt.op_timeout, self.inner().try_acquire(attempt)).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        self.carry("shrink", attempt, Phase::Release, attempt.op_timeout, self.inner().shrink(attempt, keep)).await
    }
}

#[async_trait]
impl RwLockBackend for Faulty {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_read", attempt, attempt.op_timeout, self.inner().try_read(attempt)).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.take("try_write", attempt, attempt.op_timeout, self.inner().try_write(attempt)).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.carry("downgrade", attempt, Phase::Downgrade, attempt.op_timeout, self.inner().downgrade(attempt)).await
    }
}
