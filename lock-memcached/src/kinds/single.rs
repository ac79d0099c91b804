//! A lock that is one key: the mutex and the reentrant lock.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant, MutexBackend, ReentrantBackend};

use crate::acquire::TryOutcome;
use crate::backend::{MemcachedBackend, Shared};
use crate::client::command::Command;
use crate::registry::Entry;
use crate::store::keys::Key;
use crate::wait::{self, WantedLock};

/// A lock of one key, wanted by one attempt.
struct Single<'a> {
    shared: &'a Arc<Shared>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
    key: Key,
}

impl<'a> Single<'a> {
    fn new(shared: &'a Arc<Shared>, attempt: &'a Attempt) -> Result<Self, Error> {
        let key = shared.key_of(attempt)?;
        Ok(Self { shared, attempt, entry: shared.registry.of(attempt, &key), key })
    }
}

impl WantedLock for Single<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        self.shared.looks_free(self.attempt, &self.key).await
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let round = self.shared.claim(self.attempt, &self.entry, vec![self.key.clone()], Vec::new()).await?;
        self.shared.settle(self.attempt, &self.entry, &round, self.entry.has_pieces()).await
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        true
    }
}

impl Shared {
    /// One try.
    pub(crate) async fn try_single(self: &Arc<Self>, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.once(&Single::new(self, attempt)?, attempt).await
    }

    /// A wait in line.
    pub(crate) async fn wait_for_single(
        self: &Arc<Self>,
        attempt: &Attempt,
        deadline: Deadline,
    ) -> Result<Option<Grant>, Error> {
        let wanted = Single::new(self, attempt)?;
        wait::wait(self, &wanted.key, &wanted, attempt, deadline).await
    }

    /// One try of a lock of any kind. If it comes to nothing, nothing is left of it.
    pub(crate) async fn once(
        self: &Arc<Self>,
        wanted: &impl WantedLock,
        attempt: &Attempt,
    ) -> Result<Option<Grant>, Error> {
        let taken = self.within(attempt, lock_core::Phase::Acquire, wanted.take()).await;
        let granted = taken.and_then(TryOutcome::of_a_try);
        if !matches!(granted, Ok(Some(_))) {
            self.registry.close(attempt.id);
        }
        Ok(self.described(attempt, wanted.entry(), granted?))
    }

    /// Whether nobody has this key, by a cheap read.
    pub(crate) async fn looks_free(&self, attempt: &Attempt, key: &Key) -> Result<bool, Error> {
        let look = async {
            let there = self.link.run_one(Command::Look { key: key.clone() }).await.is_there();
            there.map_err(|failure| self.link.error(failure, lock_core::Phase::Wait))
        };
        Ok(!self.within(attempt, lock_core::Phase::Wait, look).await?)
    }
}

#[async_trait]
impl MutexBackend for MemcachedBackend {
    async fn try_lock(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_single(attempt).await
    }

    async fn lock(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait_for_single(attempt, deadline).await
    }
}

/// The core counts the depth, so that a client asks once for each owner; two clients with one owner exclude each other.
#[async_trait]
impl ReentrantBackend for MemcachedBackend {
    async fn try_enter(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.shared.try_single(attempt).await
    }

    async fn enter(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        self.shared.wait_for_single(attempt, deadline).await
    }
}
