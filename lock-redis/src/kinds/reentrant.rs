//! The reentrant lock: exclusion between owners, whatever the client through which they come.

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, ReentrantBackend};

use crate::backend::RedisBackend;

#[async_trait]
impl ReentrantBackend for RedisBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_holders(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait_for_holders(attempt, deadline).await
    }
}
