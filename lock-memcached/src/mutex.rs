//! The mutex: one key.

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, MutexBackend};

use crate::backend::MemcachedBackend;

#[async_trait]
impl MutexBackend for MemcachedBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_single(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait_for_single(attempt, deadline).await
    }
}
