//! The read-write lock: fair by arrival, readers in front are admitted together.

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, RwLockBackend};
use lock_core::{Error, Phase};

use crate::backend::RedisBackend;

#[async_trait]
impl RwLockBackend for RedisBackend {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_holders(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_holders(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait_for_holders(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait_for_holders(attempt, deadline).await
    }

    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        self.change(attempt, "R", Phase::Downgrade).await
    }
}
