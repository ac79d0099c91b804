//! The semaphore: all or nothing, first come, first served.

use async_trait::async_trait;
use lock_core::backend::{Attempt, Grant, Kind, SemaphoreBackend};
use lock_core::clock::Deadline;
use lock_core::{Error, Phase};

use crate::backend::RedisBackend;
use crate::holders::permits;

#[async_trait]
impl SemaphoreBackend for RedisBackend {
    async fn try_acquire(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_holders(attempt).await
    }

    async fn acquire(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait_for_holders(attempt, deadline).await
    }

    async fn shrink(&self, attempt: &Attempt, keep: u32) -> Result<(), Error> {
        let limit = match attempt.kind {
            Kind::Permits { limit, .. } => limit,
            // Not a semaphore's attempt: the server has no such grant, and says so.
            _ => keep,
        };
        self.change(attempt, &permits(keep, limit), Phase::Release).await
    }
}
