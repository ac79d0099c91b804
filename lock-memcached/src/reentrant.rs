//! The reentrant lock: one key. The core counts the depth, so that a client asks once for each owner; two clients with one
//! owner exclude each other.

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, ReentrantBackend};

use crate::backend::MemcachedBackend;

#[async_trait]
impl ReentrantBackend for MemcachedBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_single(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait_for_single(attempt, deadline).await
    }
}
