//! The reentrant lock: the core counts how often an owner has entered, the servers see one holder.

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, ReentrantBackend};

use crate::backend::ZkBackend;

#[async_trait]
impl ReentrantBackend for ZkBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_once(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait(attempt, deadline).await
    }
}
