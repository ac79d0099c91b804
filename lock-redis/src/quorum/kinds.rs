//! The one kind of lock that a quorum has, for lock-core: the mutex.

use async_trait::async_trait;
use lock_core::clock::Deadline;
use lock_core::driver::{AdoptBackend, Attempt, Grant, MutexBackend};
use lock_core::{Error, FencingToken, GrantId};

use super::backend::QuorumBackend;

#[async_trait]
impl MutexBackend for QuorumBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_acquire(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.waits.acquire(attempt, deadline).await
    }
}

/// A mutex goes on under another nonce. It has no token.
#[async_trait]
impl AdoptBackend for QuorumBackend {
    async fn adopt(
        &self,
        attempt: &Attempt,
        from: GrantId,
        _token: Option<FencingToken>,
    ) -> Result<Option<Grant>, Error> {
        self.adopter.adopt(attempt, from).await
    }
}
