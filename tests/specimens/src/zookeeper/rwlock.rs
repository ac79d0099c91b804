//! The read-write lock: readers and writers in one queue.

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, RwLockBackend};
use lock_core::{Error, ErrorKind, Phase};

use super::queue::Queue;
use crate::backend::SpecimenBackend;

#[async_trait]
impl RwLockBackend for SpecimenBackend<Queue> {
    async fn try_read(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_once(attempt).await
    }

    async fn try_write(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.try_once(attempt).await
    }

    async fn read(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }

    async fn write(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.wait(attempt, deadline).await
    }

    /// The recipe has none.
    async fn downgrade(&self, attempt: &Attempt) -> Result<(), Error> {
        Err(attempt.error(ErrorKind::Unsupported, Phase::Downgrade, "a writer's node stays a writer's"))
    }
}
