//! A lock that is one key: the mutex and the reentrant lock.

use std::sync::Arc;

use lock_core::Error;
use lock_core::clock::Deadline;
use lock_core::driver::{Attempt, Grant};

use crate::acquire::{Acquirer, TryOutcome, WantedLock};
use crate::client::link::Link;
use crate::registry::{Entry, Registry};
use crate::wait::Waits;

/// The mutexes and reentrant locks of one client.
pub(crate) struct SingleKeyLocks {
    link: Arc<Link>,
    registry: Arc<Registry>,
    acquirer: Arc<Acquirer>,
    waits: Arc<Waits>,
}

/// A lock of one key, wanted by one attempt.
struct Single<'a> {
    locks: &'a SingleKeyLocks,
    attempt: &'a Attempt,
    entry: Arc<Entry>,
}

impl SingleKeyLocks {
    pub(crate) fn new(
        (link, registry, acquirer): (&Arc<Link>, &Arc<Registry>, &Arc<Acquirer>),
        waits: &Arc<Waits>,
    ) -> Self {
        let (link, registry) = (link.clone(), registry.clone());
        Self { link, registry, acquirer: acquirer.clone(), waits: waits.clone() }
    }

    pub(crate) async fn try_once(&self, attempt: &Attempt) -> Result<Option<Grant>, Error> {
        self.acquirer.try_once(&self.wanted(attempt)?, attempt).await
    }

    pub(crate) async fn wait(&self, attempt: &Attempt, deadline: Deadline) -> Result<Option<Grant>, Error> {
        let wanted = self.wanted(attempt)?;
        self.waits.wait(&wanted.entry.lock, &wanted, attempt, deadline).await
    }

    fn wanted<'a>(&'a self, attempt: &'a Attempt) -> Result<Single<'a>, Error> {
        Ok(Single { locks: self, attempt, entry: self.registry.register(attempt)? })
    }
}

impl WantedLock for Single<'_> {
    async fn looks_free(&self) -> Result<bool, Error> {
        self.locks.link.is_free(self.attempt, &self.entry.lock).await
    }

    async fn take(&self) -> Result<TryOutcome, Error> {
        let (acquirer, attempt, entry) = (&self.locks.acquirer, self.attempt, &self.entry);
        let round = acquirer.claim(attempt, entry, vec![entry.lock.clone()], Vec::new()).await?;
        acquirer.settle(attempt, entry, &round, entry.has_pieces()).await
    }

    fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    fn can_receive(&self) -> bool {
        true
    }
}
