//! A lock that is one key: the mutex and the reentrant lock.

use std::sync::Arc;

use lock_core::Error;
use lock_core::driver::Attempt;

use crate::acquire::{Acquirer, TryOutcome, WantedLock};
use crate::registry::Entry;
use crate::store::keys::Key;

/// A lock of one key, wanted by one attempt.
pub(crate) struct Single<'a> {
    acquirer: &'a Arc<Acquirer>,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
}

impl<'a> Single<'a> {
    pub(crate) fn new(acquirer: &'a Arc<Acquirer>, attempt: &'a Attempt) -> Result<Self, Error> {
        Ok(Self { acquirer, attempt, entry: acquirer.register(attempt)? })
    }
}

impl WantedLock for Single<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        self.acquirer.is_free(self.attempt, &self.entry.lock).await
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let (acquirer, attempt, entry) = (self.acquirer, self.attempt, &self.entry);
        let round = acquirer.claim(attempt, entry, vec![entry.lock.clone()], Vec::new()).await?;
        acquirer.settle(attempt, entry, &round, entry.has_pieces()).await
    }

    fn queue(&self) -> Key {
        self.entry.lock.clone()
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        true
    }
}
