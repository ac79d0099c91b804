//! The mutex, in the layout of Curator's `InterProcessMutex`.

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, MutexBackend};

use crate::backend::ZkBackend;

#[async_trait]
impl MutexBackend for ZkBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_once(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait(attempt, deadline).await
    }
}
